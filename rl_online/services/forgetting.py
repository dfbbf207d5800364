"""What an update cost on general text, as the updater left it beside the checkpoint."""

import json

from registry.models import Checkpoint
from rl_online.gate.forgetting import Forgetting
from rl_online.services.plans import folder_of
from rl_online.training.state import FORGETTING, state_folder


def forgetting_of(checkpoint: Checkpoint) -> Forgetting:
    """Unmeasured, with the reason, for a checkpoint that no update of this machine made since it is looked at."""
    path = state_folder(folder_of(checkpoint)) / FORGETTING
    try:
        return Forgetting.from_json(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Forgetting(unmeasured="nothing was measured after its training")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Forgetting(unmeasured=f"what was measured cannot be read: {type(error).__name__}")
