"""Bytes as a broken disk or download leaves them."""


def damaged(content: bytes, how) -> bytes:
    """`how`: (place in [0, 1), cut | flip | double | drop, a byte) each, one after the other."""
    for where, kind, byte in how:
        place = int(where * len(content))
        match kind:
            case "cut":
                content = content[:place]
            case "flip":
                content = content[:place] + bytes([byte]) + content[place + 1 :]
            case "double":
                content = content[:place] + content[place : place + byte] + content[place:]
            case "drop":
                content = content[:place] + content[place + byte :]
    return content
