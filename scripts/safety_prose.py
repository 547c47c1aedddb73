#!/usr/bin/env python3
"""Writes sentences of Debian's documentation, to price the safety rules on (docs/safety.md).

    scripts/safety_prose.py --names | xargs apt-get download
    scripts/safety_prose.py PACKAGES FOLDER
    scripts/safety-prices FOLDER

PACKAGES is a folder of .deb files, FOLDER gets LANGUAGE/PACKAGE.txt, a sentence a line: pages in
HTML, Mallard and DocBook, manual pages, plain text and info files, without code and tags. A package gives a sentence once and
a language at most 8 000 of them. The packages of COUNTED were never learned from: no text of them was read while a rule was
written. A package whose text was read moves to READ (`--read` names them): words of rules 19 went by the marks on those.
"""

import bz2
import glob
import gzip
import html
import os
import re
import subprocess
import sys
import tempfile

COUNTED = """
    accerciser bijiben blender-data bomber cervisia cheese-common devhelp-common dragonplayer elisa fluxbox gbrainy
    genius-common ghex gitg gnome-2048 gnome-boxes gnome-clocks gnome-color-manager gnome-commander-data
    gnome-dictionary gnome-logs gnome-mahjongg gnome-music gnome-nettool gnome-photos gnubg hitori imagemagick-6-doc
    inkscape k3b-data kaffeine kalarm kalzium-data kamera kamoso kapptemplate kbackup kde-spectacle keditbookmarks kfind
    kgeography-data kgpg khelpcenter kid3-core kimagemapeditor kinfocenter kleopatra klickety knights knotes kolf
    kollision kolourpaint kontrast konversation-data kphotoalbum kstars-data ktimetracker ktorrent-data ktouch-data
    kwave lilypond-doc meld minuet-data palapeli-data parley-data picmi pim-data-exporter pitivi plasma-workspace-data
    reportbug rosegarden skanlite sysprof systemsettings zenity-common
""".split()
READ = """
    abs-guide aisleriot akregator anjuta-common ark artikulate asymptote-doc baobab barbican-doc blinken borgbackup-doc bovo
    brasero-common cantor cinder-doc cmake-doc collectd-core debian-edu-doc-da debian-edu-doc-de debian-edu-doc-en
    debian-edu-doc-es debian-edu-doc-fr debian-edu-doc-it debian-edu-doc-ja debian-edu-doc-nb-no debian-edu-doc-nl
    debian-edu-doc-pt-br debian-edu-doc-pt-pt debian-edu-doc-zh-cn debian-history designate-doc doublecmd-help-en
    doublecmd-help-ru doublecmd-help-uk dovecot-core duplicity emacs-common eog erlang-doc fai-doc file-roller five-or-more
    four-in-a-row fp-docs-3.2.2 gap-doc gedit-common ghc-doc glade glance-doc gnome-calculator gnome-chess gnome-devel-docs
    gnome-disk-utility gnome-klotski gnome-mines gnome-nibbles gnome-robots gnome-sudoku gnome-system-monitor gnome-taquin
    gnome-terminal-data gnome-tetravex gnote gnumeric-doc gnupg golang-1.19-doc gradle-doc granatier grass-doc gthumb-data
    gtk-doc-tools gucharmap gwenview haproxy-doc harden-doc heat-doc homebank-data iagno icinga2-doc ironic-doc juk
    kaddressbook kanagram kapman kate5-data katomic kblocks kbruch kcalc kcharselect kdeconnect kdevelop-data kdf kdiff3-doc
    keystone-doc kfourinline kget kgoldrunner khangman kicad-doc-ca kicad-doc-de kicad-doc-en kicad-doc-es kicad-doc-fr
    kicad-doc-id kicad-doc-it kicad-doc-ja kicad-doc-pl kicad-doc-ru kicad-doc-zh kig kile killbots kiriki kiten
    kjumpingcube klines kmag kmahjongg kmail kmines kmousetool kmouth kmplot kmymoney-common knavalbattle knetwalk knot-doc
    kompare konqueror konquest kontact korganizer kpat krdc kreversi krfb kruler kshisen ksirk kspaceduel ksquares ksudoku
    ksystemlog kteatime ktimer kturtle kubrick kwalletmanager kwordquiz kwrite libgtk-3-doc lightsoff llvm-14-doc lokalize
    manila-doc marble-data mercurial-common mplayer-doc munin-doc ngspice-doc nova-doc openafs-doc orca plasma-desktop-data
    python-sklearn-doc python-sqlalchemy-doc python-sympy-doc quadrapassel rocs sbcl-doc scala-doc shorewall-doc
    skrooge-common sound-juicer step swell-foop swift-doc systemd tali tcl8.6-doc tomboy-ng twisted-doc vinagre yelp
""".split()
MOST = 8000
LONGEST = 1_500_000
LANGUAGES = set(
    "ar bg bn ca cs da de el en es et eu fa fi fil fr gl gu he hi hr hu id it ja kn ko lt lv mk ml mr nb nl nn no oc pa pl pt ro"
    " ru sk sl sr sv ta te th tr uk vi zh".split()
)
FOLDERS = [
    re.compile(form)
    for form in (r"/share/help/([a-zA-Z_@]+)/", r"/HTML/([a-zA-Z_@]+)/", r"/man/([a-z]{2}(?:_[A-Z]{2})?)/man")
]
NAME = re.compile(r"-(?:manuals|help|doc)-([a-z]{2}(?:-[a-z]{2})?)_")
CODE = re.compile(r"(?is)<(script|style|pre|programlisting|screen|svg|math)\b.*?</\1\s*>|<!--.*?-->|<\?.*?\?>|<!\[CDATA\[.*?\]\]>")
BLOCK = re.compile(
    r"(?is)</?(p|div|li|ul|ol|td|th|tr|table|h[1-6]|dt|dd|dl|br|section|title|para|item|note|steps|header|article|term|entry|row"
    r"|simpara|listitem|caption|figcaption|blockquote|info|desc|page)\b[^>]*>"
)
TAG = re.compile(r"(?s)<[^>]+>")
END = re.compile(r"(?<=[.!?])[\"')\u201d\u00bb]?\s+(?=[\"'(\u201c\u00ab¿¡]?[^\W\d_a-z])|(?<=[。！？])")
WIDE = re.compile("[\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7af]")


def language(package, path):
    """The language of a file by its folder, else by the name of its package."""
    matches = [form.search(path) for form in FOLDERS] + [NAME.search(package)]
    for match in filter(None, matches):
        code = re.split("[-_@]", match.group(1))[0].lower()
        if code in LANGUAGES:
            return code
    return "en"


def blocks_of_markup(text):
    text = BLOCK.sub("\n\n", CODE.sub("\n\n", text))
    return html.unescape(TAG.sub("", text)).split("\n\n")


def blocks_of_manual(text):
    lines = []
    for line in text.splitlines():
        words = re.match(r"\.(?:B|I|BR|IR|RB|RI|IB|BI)\s+(.*)", line)
        if words:
            lines.append(words.group(1).replace('"', ""))
        elif not line.startswith((".", "'")):
            lines.append(line)
        elif not line.startswith('.\\"'):
            lines.append("\n")
    text = re.sub(r"\\f(?:\[[^\]]*\]|\([A-Z]{2}|.)|\\[&|^:%/,]|\\s[-+]?\d", "", "\n".join(lines))
    return blocks_of_text(text.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"))


def blocks_of_text(text):
    return re.split(r"\n\s*\n", text)


def reader(name):
    """The reader of a file by its name without the ending of its compression."""
    documents = any(folder in name for folder in ("/doc", "/help", "/man", "/html", "/HTML"))
    if documents and re.search(r"\.(html?|xhtml|page|docbook|xml)$|index\.cache$", name):
        return blocks_of_markup
    if re.search(r"/man/.*\.\d\w*$", name):
        return blocks_of_manual
    if re.search(r"/info/.*\.info(-\d+)?$", name) or re.search(r"/doc/(?!.*/_sources/).*\.(txt|md|rst|org)$", name):
        return blocks_of_text
    return None


def read(path):
    try:
        with open(path, "rb") as file:
            raw = file.read(LONGEST)
        if path.endswith(".gz"):
            raw = gzip.decompress(raw)
        elif path.endswith(".bz2"):
            raw = bz2.decompress(raw)
        return raw.decode("utf-8")
    except (OSError, EOFError, ValueError):
        return ""


def sentences(block):
    for sentence in map(str.strip, END.split(" ".join(block.split()))):
        letters = sum(one.isalpha() for one in sentence)
        words = letters >= 15 and len(sentence.split()) >= 3
        whole = words or letters >= 6 and WIDE.search(sentence)
        if whole and len(sentence) <= 1200 and letters > len(sentence) / 2 and not sentence.startswith("#"):
            yield sentence


def of_package(package, root):
    """The sentences of an unpacked package by language."""
    lists, seen = {}, set()
    for path in sorted(glob.glob(root + "/**/*", recursive=True)):
        name = re.sub(r"\.(gz|bz2)$", "", path)
        blocks = reader(name)
        plain = os.path.isfile(path) and not os.path.islink(path)
        if not plain or blocks is None or re.search(r"/(copyright|changelog.*|NEWS\.Debian)$", name):
            continue
        mine = lists.setdefault(language(package, path), [])
        if len(mine) >= MOST:
            continue
        for block in blocks(read(path)):
            new = [one for one in dict.fromkeys(sentences(block)) if one not in seen]
            seen.update(new)
            mine.extend(new[: MOST - len(mine)])
    return lists


def main(packages, folder):
    for path in sorted(glob.glob(os.path.join(packages, "*.deb"))):
        package = os.path.basename(path)
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["dpkg-deb", "-x", path, root], check=True)
            lists = of_package(package, root)
        for code, mine in lists.items():
            if len(mine) >= 20:
                os.makedirs(os.path.join(folder, code), exist_ok=True)
                with open(os.path.join(folder, code, package.split("_")[0] + ".txt"), "w", encoding="utf-8") as file:
                    file.write("\n".join(mine) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] in (["--names"], ["--read"]):
        print(*(COUNTED if sys.argv[1] == "--names" else READ), sep="\n")
    elif len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)
