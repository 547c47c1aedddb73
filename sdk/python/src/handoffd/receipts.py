"""`verify_receipt`: a receipt held against the log's public key, with nothing of the broker (RFC 9162, C2SP signed notes).

Needs the extra `receipts` (`cryptography`)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._wire import plain
from .errors import HandoffdError, VerificationError


@dataclass(frozen=True, slots=True)
class VerifiedReceipt:
    """The proof of a valid receipt: the record is in the log as it was then."""

    origin: str
    """The log's name in the signed tree head."""
    leaf_index: int
    """The record's place."""
    tree_size: int
    """Records in the tree that was signed."""
    record_hash: str
    """`sha256:…`"""


def verify_receipt(receipt: Mapping[str, Any] | Any, verifier_key: str | Sequence[str]) -> VerifiedReceipt:
    """Checks that the tree head is signed by the key, and that the record is in its tree.

    Args:
        receipt: `receipt` of a submission's answer: the model, or its JSON.
        verifier_key: The log's public key, `name+id+key` (`GET /audit/keys`, `Client.audit.tree_keys`); several where the log
            changed its key. Keep it apart from the broker: a key that was fetched with the receipt proves nothing.

    Raises:
        VerificationError: Another key, another log, a wrong signature, or a proof that does not lead to the signed root.
        HandoffdError: The package `cryptography` is missing.
    """
    given = plain(receipt)
    try:
        text, _, lines = given["treeHead"].rpartition("\n\n")
        origin, size, root = text.split("\n")[:3]
        _signed(f"{text}\n".encode(), lines, origin, [verifier_key] if isinstance(verifier_key, str) else verifier_key)
        if not origin.endswith(f"/{given['logId']}"):
            raise VerificationError("the tree head is not of the log that the receipt names")
        leaf = bytes.fromhex(given["recordHash"].removeprefix("sha256:"))
        steps = [base64.b64decode(step, validate=True) for step in given["inclusionProof"]]
        index, tree_size = given["leafIndex"], int(size)
        # Digests of other lengths could be cut elsewhere, and be hashed to the same.
        if type(index) is not int or any(len(one) != hashlib.sha256().digest_size for one in (leaf, *steps)):
            raise VerificationError("the receipt has a place or a digest that is none")
        if not _included(leaf, index, tree_size, steps, base64.b64decode(root, validate=True)):
            raise VerificationError("the record is not in the tree that was signed")
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, binascii.Error) as malformed:
        raise VerificationError(f"the receipt or the key is malformed: {malformed}") from None
    return VerifiedReceipt(origin, index, tree_size, given["recordHash"])


def _signed(text: bytes, lines: str, origin: str, keys: Sequence[str]) -> None:
    """Raises `VerificationError` where none of the keys signed the text in that name."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise HandoffdError("verify_receipt needs the package cryptography: pip install 'handoffd[receipts]'") from None
    for verifier_key in keys:
        name, key_id, encoded = verifier_key.strip().split("+", 2)
        key = base64.b64decode(encoded, validate=True)
        if hashlib.sha256(f"{name}\n".encode() + key).digest()[:4].hex() != key_id or key[:1] != b"\x01":
            raise VerificationError("the verifier key is not what its id says")
        if name != origin:
            continue
        for line in lines.splitlines():
            dash, by, *rest = line.split(" ")
            blob = base64.b64decode(rest[0], validate=True) if len(rest) == 1 and (dash, by) == ("—", name) else b""
            if blob[:4].hex() != key_id:
                continue
            with contextlib.suppress(InvalidSignature):
                Ed25519PublicKey.from_public_bytes(key[1:]).verify(blob[4:], text)
                return
    raise VerificationError("the tree head is not signed by that key in its own name")


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _included(leaf: bytes, index: int, size: int, steps: list[bytes], root: bytes) -> bool:
    """RFC 9162 §2.1.3.2."""
    if not 0 <= index < size:
        return False
    at, last, node = index, size - 1, leaf
    for step in steps:
        if last == 0:
            return False
        if at % 2 == 1 or at == last:
            node = _node(step, node)
            while at % 2 == 0 and at != 0:
                at, last = at // 2, last // 2
        else:
            node = _node(node, step)
        at, last = at // 2, last // 2
    return last == 0 and node == root
