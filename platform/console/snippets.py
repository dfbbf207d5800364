"""What an empty page offers to copy: its own addresses, the policy's own name, a key still to be filled in."""

from dataclasses import dataclass

from django.conf import settings

KEY = "$STROP_KEY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    name: str
    caption: str
    text: str


def first_signal(policy: str | None) -> list[Snippet]:
    """An answer through the gateway and what its user did with it, in Python and with curl."""
    model = policy or "<policy>"
    url = settings.PUBLIC_URL
    return [
        Snippet(
            name="snippet-python",
            caption="Python, with the openai client: ask, then say what the user did",
            text=f"""import os, uuid, datetime, httpx, openai
key = os.environ["STROP_KEY"]  # strop keys create --scopes infer,ingest
client = openai.OpenAI(base_url="{url}/v1", api_key=key)
ask = [{{"role": "user", "content": "Say hello."}}]
answer = client.chat.completions.create(model="{model}", messages=ask)
signal = {{"type": "signal", "id": str(uuid.uuid4()), "turn": answer.id, "kind": "accept",
          "at": datetime.datetime.now(datetime.timezone.utc).isoformat()}}
httpx.post("{url}/v1/events", json={{"items": [signal]}}, headers={{"Authorization": f"Bearer {{key}}"}})""",
        ),
        Snippet(
            name="snippet-curl",
            caption="curl: ask through the gateway; the reply's id names the turn",
            text=f"""curl {url}/v1/chat/completions \\
  -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'""",
        ),
        Snippet(
            name="snippet-curl-signal",
            caption="curl: send the signal, with that turn's id",
            text=f"""curl {url}/v1/events -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" \\
  -d @- <<END
{{"items": [{{"type": "signal", "id": "$(uuidgen)", "turn": "$TURN", "kind": "accept", "at": "$(date -u +%FT%TZ)"}}]}}
END""",
        ),
    ]


def another_engine() -> Snippet:
    """An engine beside the one that `strop up` starts, under a name of its own."""
    return Snippet(
        name="snippet-engine",
        caption="shell: another engine, on a machine that reaches this address",
        text=f"""export STROP_TOKEN_FILE=secrets/internal  # of this Strop's home
python -m rl_online.commands.engine --name engine-2 --web {settings.PUBLIC_URL} --device cuda \\
  --socket engine-2.sock --cache engine-2-weights""",
    )
