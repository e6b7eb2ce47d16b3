"""What each request of a client reused, what it read again, and why."""

from dataclasses import asdict, dataclass
from typing import Callable

from ..prompt_trie import PromptTrie
from .opencode_session import Event
from .recorder import Exchange

SNIPPET_TOKENS = 12
CAUSE_OF_SOURCE = {"pinned": "only the head was kept",
                   "disk": "only lines of the disk tier were left"}


@dataclass
class Row:
    number: int
    kind: str
    prompt: int
    sent_before: int
    cached: int
    computed: int
    reread: int  # sent before, and computed all the same
    output: int
    source: str
    anchor: str
    miss_reason: str
    cause: str  # of what was read again; empty: nothing was
    parts_at: str  # the text with which the prompt parts from all before it


def rows(exchanges: list[Exchange], events: list[Event],
         detokenize: Callable[[list[int]], str]) -> list[Row]:
    """One row a request that the engine answered, in the order in which they
    were sent."""
    trie = PromptTrie()
    out = []
    since: list[str] = []
    for exchange in exchanges:
        since += [e.what for e in events if e.before_request == exchange.number]
        if not exchange.prompt_ids:
            since.append(f"request {exchange.number} has no ids: {_why_none(exchange)}")
            continue
        out.append(_row(exchange, trie, since, detokenize))
        since = []
        # The last token of an answer is sampled and never forwarded.
        trie.add(exchange.prompt_ids + exchange.output_ids[:-1])
    return out


def _row(exchange: Exchange, trie: PromptTrie, since: list[str],
         detokenize: Callable[[list[int]], str]) -> Row:
    report, ids = exchange.answer.holdfast, exchange.prompt_ids
    known = trie.known(ids)
    cached = exchange.answer.cached_tokens
    row = Row(exchange.number, kind_of(exchange), len(ids), known, cached,
              report.get("computed_tokens", 0), max(0, known - cached),
              exchange.answer.usage.get("completion_tokens", 0), report.get("cache_source", ""), report.get("anchor") or "",
              report.get("miss_reason") or "", "",
              detokenize(ids[known:known + SNIPPET_TOKENS]) if known < len(ids) else "")
    row.cause = _cause(row, since)
    return row


def _cause(row: Row, since: list[str]) -> str:
    if row.reread == 0:
        return ""
    parts = list(since)
    if row.miss_reason:
        parts.append(f"miss: {row.miss_reason}")
    if row.source in CAUSE_OF_SOURCE:
        parts.append(CAUSE_OF_SOURCE[row.source])
    if row.cached:
        parts.append(f"the nearest state kept is the {row.anchor or 'row'} at {row.cached}, "
                     f"{row.reread} before the difference")
    return "; ".join(parts) or "unknown"


def _why_none(exchange: Exchange) -> str:
    if exchange.client_gone:
        return "the client closed it"
    return f"status {exchange.answer.status}, {exchange.answer.error or 'cut off'}"


def kind_of(exchange: Exchange) -> str:
    messages = exchange.body.get("messages") or []
    first = str(messages[0].get("content")) if messages else ""
    if "title generator" in first:
        return "title"
    roles = [m.get("role") for m in messages]
    return "tool step" if roles[-1:] == ["tool"] else "user turn"


def summary(table: list[Row]) -> dict:
    known = sum(r.sent_before for r in table)
    reread = sum(r.reread for r in table)
    return {"requests": len(table), "prompt_tokens": sum(r.prompt for r in table),
            "sent_before_tokens": known, "reread_tokens": reread,
            "computed_tokens": sum(r.computed for r in table),
            "reused_of_sent_before": round(1 - reread / known, 5) if known else 1.0,
            "rows": [asdict(r) for r in table]}


def lines(table: list[Row]) -> list[str]:
    out = [f"{'':>3} {'kind':<10}{'prompt':>8}{'before':>8}{'cached':>8}{'computed':>9}{'re-read':>8}"
           f"{'output':>7}  {'source':<9} {'anchor':<11}"]
    for r in table:
        out.append(f"{r.number:>3} {r.kind:<10}{r.prompt:>8}{r.sent_before:>8}{r.cached:>8}"
                   f"{r.computed:>9}{r.reread:>8}{r.output:>7}  {r.source:<9} {r.anchor:<11}")
        if r.cause:
            out.append(f"      {r.cause}")
    return out


def problems(table: list[Row], wanted_reuse: float) -> list[str]:
    out = [f"request {r.number}: {r.reread} tokens were read again for no known cause"
           for r in table if r.cause == "unknown"]
    reused = summary(table)["reused_of_sent_before"]
    if reused < wanted_reuse:
        out.append(f"of the tokens that were sent before, {reused} were reused, "
                   f"less than {wanted_reuse}")
    return out
