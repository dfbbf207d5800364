"""What can be wrong with a corpus."""


class CorpusError(ValueError):
    """Base: UnusableSource, UnusableRecipe (the caller's), CorruptCorpus (the disk's)."""


class UnusableSource(CorpusError):
    """What was named cannot be read as a corpus, or nothing in it may be learnt from."""


class UnusableRecipe(CorpusError):
    """An option that means nothing, alone or with this tokenizer."""


class CorruptCorpus(CorpusError):
    """The folder does not hold what its digest says."""
