"""Makes a broker's log grow: every key that is made is a record."""

import json
import sys
import urllib.request

url, admin_key, count = sys.argv[1:4]
for _ in range(int(count)):
    request = urllib.request.Request(
        url + "/keys", method="POST", data=json.dumps({"role": "auditor"}).encode(),
        headers={"Authorization": f"Bearer {admin_key}", "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).read()
