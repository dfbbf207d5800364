"""What can be wrong with weights that were read.

CorruptCheckpoint       a folder, or its manifest, does not hold what its digests say
    CorruptDelta        a delta, or its manifest, is damaged, or does not lead to the digest it names
    WrongBase           a delta is whole, but made for other weights than the ones given
"""


class CorruptCheckpoint(ValueError):
    """A checkpoint folder does not hold what its manifest says."""


class CorruptDelta(CorruptCheckpoint):
    """A delta object is damaged."""


class WrongBase(CorruptCheckpoint):
    """A delta was made for another parent."""
