"""What must not be learnt from, whatever it says: files that hold no text, and what looks like somebody's secret."""

import re
from fnmatch import fnmatchcase

SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa", "id_dsa",
    "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".htpasswd", ".git-credentials", "credentials",
)  # fmt: skip

# The forms that the issuers of keys document for their scanners; each is rare by chance.
_SECRETS = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60}"
    r"|\bglpat-[A-Za-z0-9_-]{20}\b"
    r"|\bxox[abprs]-[A-Za-z0-9-]{20}"
    r"|\bAIza[0-9A-Za-z_-]{35}\b"
    r"|\b[sr]k_live_[0-9A-Za-z]{20}"
    r"|\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32}"
    r"|\bnpm_[A-Za-z0-9]{36}\b"
    r"|\bhf_[A-Za-z0-9]{34}\b"
)


def is_secret_name(name: str) -> bool:
    """Of a file, without its folder. Names of modules such as `secrets.py` are none."""
    return any(fnmatchcase(name.lower(), pattern) for pattern in SECRET_NAMES)


def holds_secret(text: str) -> bool:
    return _SECRETS.search(text) is not None


def decoded(data: bytes) -> tuple[str, str]:
    """(text, "") or ("", why it is none): binary, undecodable (not UTF-8) or empty."""
    if b"\0" in data:
        return "", "binary"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "", "undecodable"
    return (text, "") if text.strip() else ("", "empty")
