"""What an empty page and the first-steps page offer to copy: programs that run as they stand.

Each asks a model and then says what the user did with the answer, with this server's own address and, where one was
just made, a real key. A test runs every one of them against a running server.
"""

import json
from dataclasses import dataclass

from django.conf import settings

KEY = "$STROP_KEY"
ENVIRONMENT = "STROP_KEY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    name: str
    caption: str
    text: str
    title: str = ""  # of its tab
    runs_with: str = ""  # what has to be there


def first_signal(policy: str | None) -> list[Snippet]:
    """For the empty state of a page: through the gateway where there is a policy, else with a model of one's own."""
    if policy is None:
        return [curl_turn(None), python_turn(None)]
    return [openai_python(policy, None), curl_gateway(policy, None)]


def through_gateway(policy: str, key: str | None) -> list[Snippet]:
    """Strop answers and keeps the turn; the product sends the signal."""
    return [
        curl_gateway(policy, key),
        openai_python(policy, key),
        javascript_gateway(policy, key),
        openai_node(policy, key),
    ]


def from_elsewhere(key: str | None) -> list[Snippet]:
    """Another model answers; the product sends turn and signal."""
    return [curl_turn(key), python_turn(key), javascript_turn(key)]


def curl_gateway(policy: str, key: str | None) -> Snippet:
    asked = json.dumps({"model": policy, "max_tokens": 40, "messages": [{"role": "user", "content": "Say hello."}]})
    return Snippet(
        name="gateway-curl",
        title="curl",
        runs_with="bash and curl",
        caption="curl: ask, then say that the user took the answer",
        text=f"""{_shell_key(key)}
reply=$(curl -sS "{_url()}/v1/chat/completions" \\
  -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" \\
  -d '{asked}')
echo "$reply"
turn=$(echo "$reply" | grep -o '"id": *"[^"]*"' | head -n 1 | cut -d '"' -f 4)
curl -sS "{_url()}/v1/events" -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" -d @- <<END
{{"items": [{{"type": "signal", "id": "$turn-accept", "turn": "$turn", "kind": "accept", "at": "$(date -u +%FT%TZ)"}}]}}
END""",
    )


def openai_python(policy: str, key: str | None) -> Snippet:
    return Snippet(
        name="gateway-openai-python",
        title="openai (Python)",
        runs_with="pip install openai",
        caption="Python with the openai client: ask, then say that the user took the answer",
        text=f"""import os
from datetime import datetime, timezone
import httpx, openai

key = {_python_key(key)}
client = openai.OpenAI(base_url="{_url()}/v1", api_key=key)
question = [{{"role": "user", "content": "Say hello."}}]
answer = client.chat.completions.create(model="{policy}", messages=question, max_tokens=40)
print(answer.choices[0].message.content)
signal = {{"type": "signal", "id": answer.id + "-accept", "turn": answer.id, "kind": "accept",
          "at": datetime.now(timezone.utc).isoformat()}}
sent = httpx.post("{_url()}/v1/events", json={{"items": [signal]}}, headers={{"Authorization": "Bearer " + key}})
print(sent.status_code, sent.text)""",
    )


def javascript_gateway(policy: str, key: str | None) -> Snippet:
    return Snippet(
        name="gateway-javascript",
        title="JavaScript",
        runs_with="Node 18 or newer, on your server",
        caption="JavaScript with fetch: ask, then say that the user took the answer",
        text=f"""const key = {_script_key(key)};
const post = async (path, body) => {{
  const reply = await fetch("{_url()}" + path, {{
    method: "POST",
    headers: {{ "Authorization": "Bearer " + key, "Content-Type": "application/json" }},
    body: JSON.stringify(body),
  }});
  if (!reply.ok) throw new Error(reply.status + " " + (await reply.text()));
  return reply.json();
}};
(async () => {{
  const messages = [{{ role: "user", content: "Say hello." }}];
  const answer = await post("/v1/chat/completions", {{ model: "{policy}", messages, max_tokens: 40 }});
  console.log(answer.choices[0].message.content);
  const at = new Date().toISOString();
  const signal = {{ type: "signal", id: answer.id + "-accept", turn: answer.id, kind: "accept", at }};
  console.log(JSON.stringify(await post("/v1/events", {{ items: [signal] }})));
}})();""",
    )


def openai_node(policy: str, key: str | None) -> Snippet:
    return Snippet(
        name="gateway-openai-node",
        title="openai (Node)",
        runs_with="npm install openai, saved as .mjs",
        caption="JavaScript with the openai client: ask, then say that the user took the answer",
        text=f"""import OpenAI from "openai";

const key = {_script_key(key)};
const client = new OpenAI({{ baseURL: "{_url()}/v1", apiKey: key }});
const messages = [{{ role: "user", content: "Say hello." }}];
const answer = await client.chat.completions.create({{ model: "{policy}", messages, max_tokens: 40 }});
console.log(answer.choices[0].message.content);
const at = new Date().toISOString();
const signal = {{ type: "signal", id: answer.id + "-accept", turn: answer.id, kind: "accept", at }};
const sent = await fetch("{_url()}/v1/events", {{
  method: "POST",
  headers: {{ "Authorization": "Bearer " + key, "Content-Type": "application/json" }},
  body: JSON.stringify({{ items: [signal] }}),
}});
console.log(sent.status, await sent.text());""",
    )


def curl_turn(key: str | None) -> Snippet:
    return Snippet(
        name="events-curl",
        title="curl",
        runs_with="bash and curl",
        caption="curl: an answer that your own model gave, and what its user did with it",
        text=f"""{_shell_key(key)}
id=first-$(date +%s)-$RANDOM; now=$(date -u +%FT%TZ)
curl -sS "{_url()}/v1/events" -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" -d @- <<END
{{"items": [
  {{"type": "turn", "id": "$id", "session": "$id", "at": "$now", "model": "my-model",
   "messages": [{{"role": "user", "content": "1 + 1 ="}}], "completion": "2"}},
  {{"type": "signal", "id": "$id-accept", "turn": "$id", "kind": "accept", "at": "$now"}}]}}
END""",
    )


def python_turn(key: str | None) -> Snippet:
    return Snippet(
        name="events-python",
        title="Python",
        runs_with="Python 3, nothing installed",
        caption="Python: an answer that your own model gave, and what its user did with it",
        text=f"""import json, os, urllib.request, uuid
from datetime import datetime, timezone

key = {_python_key(key)}
turn, now = str(uuid.uuid4()), datetime.now(timezone.utc).isoformat()
items = [
    {{"type": "turn", "id": turn, "session": turn, "at": now, "model": "my-model",
     "messages": [{{"role": "user", "content": "1 + 1 ="}}], "completion": "2"}},
    {{"type": "signal", "id": turn + "-accept", "turn": turn, "kind": "accept", "at": now}},
]
request = urllib.request.Request(
    "{_url()}/v1/events", json.dumps({{"items": items}}).encode(),
    {{"Authorization": "Bearer " + key, "Content-Type": "application/json"}})
with urllib.request.urlopen(request) as reply:
    print(reply.status, reply.read().decode())""",
    )


def javascript_turn(key: str | None) -> Snippet:
    return Snippet(
        name="events-javascript",
        title="JavaScript",
        runs_with="Node 18 or newer, on your server",
        caption="JavaScript with fetch: an answer that your own model gave, and what its user did with it",
        text=f"""const key = {_script_key(key)};
const turn = "first-" + Date.now() + "-" + Math.random().toString(36).slice(2), at = new Date().toISOString();
const items = [
  {{ type: "turn", id: turn, session: turn, at, model: "my-model",
    messages: [{{ role: "user", content: "1 + 1 =" }}], completion: "2" }},
  {{ type: "signal", id: turn + "-accept", turn, kind: "accept", at }},
];
(async () => {{
  const reply = await fetch("{_url()}/v1/events", {{
    method: "POST",
    headers: {{ "Authorization": "Bearer " + key, "Content-Type": "application/json" }},
    body: JSON.stringify({{ items }}),
  }});
  console.log(reply.status, await reply.text());
}})();""",
    )


def _url() -> str:
    return settings.PUBLIC_URL


def _shell_key(key: str | None) -> str:
    return f"{ENVIRONMENT}={key}" if key else f'# export {ENVIRONMENT}=... first; "Make a key" shows one'


def _python_key(key: str | None) -> str:
    return f'"{key}"' if key else f'os.environ["{ENVIRONMENT}"]'


def _script_key(key: str | None) -> str:
    return f'"{key}"' if key else f"process.env.{ENVIRONMENT}"
