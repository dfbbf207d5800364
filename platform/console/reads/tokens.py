"""A completion token by token: how likely each was, which weights sampled it, and where it was trained on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from console.reads.turn import Sealed, sealed_of, turn_of
from console.reads.turn_views import views_of
from feedback.models import Turn, TurnPayload
from rl_online.rewards.batch import Sample
from rl_online.services.token_text import Decoded, token_texts
from rl_online.serving.protocol import TokenText

MAX_TOKENS = 1500  # of one completion on one page
SHADES = (0.9, 0.5, 0.2, 0.05)  # probabilities at which the shade gets one step darker
UNKNOWN_SHADE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    index: int
    id: int
    text: str | None  # None: unknown
    is_special: bool
    logprob: float | None  # as the engine sampled it
    version: int | None  # of the weights that sampled it
    advantages: list[float | None]  # one for each batch; None: not trained on in it

    @property
    def probability(self) -> float | None:
        return None if self.logprob is None else math.exp(min(0.0, self.logprob))

    @property
    def shade(self) -> str:
        """0 (likely) to 4 (a surprise)."""
        if self.probability is None:
            return UNKNOWN_SHADE
        return str(sum(self.probability < step for step in SHADES))

    @property
    def title(self) -> str:
        """Everything exact, for the hover."""
        parts = [f"token {self.index}, id {self.id}"]
        if self.probability is None:
            parts.append("probability unknown")
        else:
            parts.append(f"probability {self.probability:.4g}, logprob {self.logprob:.4g}")
        if self.version is not None:
            parts.append(f"version {self.version}")
        parts += [f"advantage {advantage:+.3g}" for advantage in self.advantages if advantage is not None]
        return ", ".join(parts)

    @property
    def is_trained(self) -> bool:
        return any(advantage is not None for advantage in self.advantages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Tokens in a row that one version of the weights sampled."""

    first: int
    end: int  # exclusive
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TokensView:
    turn: Turn
    tokens: list[Token]
    num_hidden: int  # tokens beyond the ones shown
    spans: list[Span]
    sealed: list[Sealed]
    problem: str  # why the texts of the tokens are unknown; empty: they are known
    differs: bool  # the tokens' texts together are not the stored completion
    mean_logprob: float | None

    @property
    def perplexity(self) -> float | None:
        return None if self.mean_logprob is None else math.exp(-self.mean_logprob)


def tokens_of(turn_id: str) -> TokensView:
    """Raises NotFound."""
    turn = turn_of(turn_id)
    (view,) = views_of([turn])
    payload = TurnPayload.objects.filter(project_id=turn.project_id, turn_id=turn.turn_id, at=turn.at).first()
    ids = list(payload.completion_token_ids or []) if payload else []
    decoded = token_texts(turn.policy, ids[:MAX_TOKENS]) if ids else Decoded(tokens=None)
    sealed = sealed_of(view.learned)
    logprobs = list(payload.logprobs or []) if payload else []
    spans = [Span(first=a, end=b, version=v) for a, b, v in (payload.weight_versions or [])] if payload else []
    return TokensView(
        turn=turn,
        tokens=_tokens(ids[:MAX_TOKENS], decoded.tokens, logprobs, spans, sealed),
        num_hidden=max(0, len(ids) - MAX_TOKENS),
        spans=spans,
        sealed=sealed,
        problem=decoded.problem,
        differs=payload is not None and _differs(decoded.tokens, payload.completion, is_whole=len(ids) <= MAX_TOKENS),
        mean_logprob=math.fsum(logprobs) / len(logprobs) if logprobs else None,
    )


def _tokens(
    ids: Sequence[int],
    texts: Sequence[TokenText] | None,
    logprobs: Sequence[float],
    spans: Sequence[Span],
    sealed: Sequence[Sealed],
) -> list[Token]:
    advantages = [advantages_of(one.sample, len(ids)) for one in sealed]
    versions = {index: span.version for span in spans for index in range(span.first, min(span.end, len(ids)))}
    return [
        Token(
            index=index,
            id=token_id,
            text=texts[index].text if texts else None,
            is_special=bool(texts and texts[index].is_special),
            logprob=logprobs[index] if index < len(logprobs) else None,
            version=versions.get(index),
            advantages=[one[index] for one in advantages],
        )
        for index, token_id in enumerate(ids)
    ]


def advantages_of(sample: Sample | None, num_tokens: int) -> list[float | None]:
    """As sealed, of each completion token whose mask is 1; all None where the file is not here."""
    if sample is None:
        return [None] * num_tokens
    start = sample.prompt_length
    mask = sample.mask[start:]
    each = sample.row.get("advantages") or [sample.reward - sample.baseline] * len(sample.token_ids)
    return [each[start + index] if index < len(mask) and mask[index] else None for index in range(num_tokens)]


def _differs(texts: Sequence[TokenText] | None, completion: str, *, is_whole: bool) -> bool:
    """A completion may end before its tokens do: a stop string is cut off."""
    if texts is None:
        return False
    said = "".join(token.text for token in texts if not token.is_special)
    return not (said.startswith(completion) if is_whole else completion.startswith(said))
