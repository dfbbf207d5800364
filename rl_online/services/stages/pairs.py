"""Direct preference learning: DPO, IPO or cDPO on pairs of answers."""

from functools import partial

from rl_online.models import UpdateKind
from rl_online.services.pair_samples import PAIR_OPTIONS, gather_pairs, look_at_pairs
from rl_online.services.stages.stage import Stage

STAGE = Stage(
    kind=UpdateKind.PAIRS,
    title="Preference pairs",
    purpose="Make what people preferred likelier than what they did not, without a reward model (DPO, IPO, cDPO).",
    unit="pairs",
    options=PAIR_OPTIONS,
    settings=("pref_loss", "dpo_beta", "label_smoothing", "learning_rate", "epochs", "minibatch_size"),
    preset={"pref_loss": "dpo"},
    look=partial(look_at_pairs, UpdateKind.PAIRS),
    gather=partial(gather_pairs, UpdateKind.PAIRS),
)
