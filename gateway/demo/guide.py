"""What to type once the demo serves."""

from __future__ import annotations

_GUIDE = """\
Weir serves {model} (also as "default") over {count} engines: {base_url}

With curl:

  curl -N {base_url}/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Tell me about rivers."}}]}}'

With Python (pip install openai):

  from openai import OpenAI

  client = OpenAI(base_url="{base_url}", api_key="none")
  answer = client.chat.completions.create(
      model="{model}", messages=[{{"role": "user", "content": "Tell me about rivers."}}]
  )
  print(answer.choices[0].message.content)

Metrics:    {origin}/metrics
Endpoints:  {origin}/weir/endpoints
Why slow:   .venv/bin/weir explain --slowest 5 --url {origin}
Logs:       {logs} (one line a request in requests.jsonl; removed when the demo ends)
"""


def guide(origin: str, model: str, count: int, logs: str) -> str:
    """Returns the text; ``origin`` is Weir's URL without a path."""
    return _GUIDE.format(origin=origin, base_url=f"{origin}/v1", model=model, count=count, logs=logs)
