"""Mid-training: an update over a corpus of code and text, whose every token is learnt by cross-entropy.

`run_update` with another way to learn; the batch folder names the corpus, whose shards lie in the folder `corpus`.
"""

from collections.abc import Callable

from rl_online.corpus.shards import open_corpus
from rl_online.training.apply import Applied, Hooks, run_steps, summarise
from rl_online.training.corpus_steps import CorpusSteps, heldout_of
from rl_online.training.local import LocalTrainer
from rl_online.training.refusals import refuse_for_corpus
from rl_online.training.samples import Selection
from rl_online.training.steps import refuse_idle
from rl_online.training.trainer import Trainer
from rl_online.training.update import CORPUS, UpdateRequest, begin
from rl_online.weights.manifest import Manifest


def learn_from_corpus(
    request: UpdateRequest, parent: Manifest, hooks: Hooks, *, open_trainer: Callable[..., Trainer] = LocalTrainer
) -> tuple[Trainer, Applied]:
    """Every row once in each epoch, from the last snapshot on. Raises CorruptCorpus besides what `run_update` does.

    The order of the rows is not kept with the checkpoint: seed and corpus settle it.
    """
    refuse_for_corpus(request.config)
    config, corpus = request.config, open_corpus(request.folders[CORPUS])
    trainer, keeper = begin(request, parent, hooks, open_trainer=open_trainer)
    steps = CorpusSteps(corpus, config, seed=request.seed, crash=hooks.crash)
    heldout = heldout_of(corpus)
    history = run_steps(trainer, steps, heldout, config, hooks=hooks, keeper=keeper)
    refuse_idle(history)
    counts = {"num_rows": float(corpus.num_rows), "num_tokens": float(corpus.num_tokens)}
    metrics = summarise(history, Selection(samples=[], dropped={}), len(heldout)) | counts
    return trainer, Applied(metrics=metrics, order=[], history=history)
