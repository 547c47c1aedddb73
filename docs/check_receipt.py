"""Checks a receipt of handoffd with nothing of handoffd: python3 check_receipt.py RECEIPT.json VKEY"""

import base64
import hashlib
import json
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def sha(data):
    return hashlib.sha256(data).digest()


receipt, (name, key_id, key) = json.load(open(sys.argv[1])), sys.argv[2].split("+", 2)
b64 = base64.b64decode

# The key is the one that its name and id say; it signed the tree head's text.
assert sha(f"{name}\n".encode() + b64(key))[:4].hex() == key_id, "not that key"
text, lines = receipt["treeHead"].rsplit("\n\n", 1)
signatures = [b64(line.split(" ")[2]) for line in lines.splitlines() if line.split(" ")[1] == name]
signature = next(found[4:] for found in signatures if found[:4].hex() == key_id)
Ed25519PublicKey.from_public_bytes(b64(key)[1:]).verify(signature, f"{text}\n".encode())
origin, size, root = text.split("\n")[:3]
assert origin == name, "another log's tree head"
assert origin.split("/")[-1] == receipt["logId"], "a receipt of another log"

# From the record up to the root that was signed (RFC 9162 §2.1.3.2).
node, at, last = bytes.fromhex(receipt["recordHash"][len("sha256:"):]), receipt["leafIndex"], int(size) - 1
assert type(at) is int and 0 <= at <= last, "not in this tree"
assert len(node) == 32, "no digest"
for step in map(b64, receipt["inclusionProof"]):
    assert len(step) == 32, "no digest"
    assert last > 0, "the proof is too long"
    if at % 2 == 1 or at == last:
        node = sha(b"\1" + step + node)
        while at % 2 == 0 and at != 0:
            at, last = at // 2, last // 2
    else:
        node = sha(b"\1" + node + step)
    at, last = at // 2, last // 2
assert last == 0 and node == b64(root), "the record is not in this tree"
print(f"record {receipt['leafIndex']} is among the {size} of {origin}")
