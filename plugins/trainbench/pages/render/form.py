"""The filters in a page's address: the same on every page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlencode

from fastapi import HTTPException, Query
from pydantic import ValidationError

from trainbench.pages.reads.filters import Filters

DAYS = (7, 30, 90, 180)
DEFAULT_DAYS = 30


@dataclass(frozen=True)
class FilterForm:
    """The filters of a page. `query`: parameters that differ from the defaults, for links."""

    filters: Filters
    days: int
    today: date
    query: dict[str, str]

    def to(self, **changes: object) -> str:
        """The address of the same page with other parameters; None removes one."""
        query = {**self.query, **changes}
        return "?" + urlencode({name: str(value) for name, value in query.items() if value is not None})

    @property
    def is_narrowed(self) -> bool:
        return any(name != "days" for name in self.query)


def filter_form(
    gpu: str | None = Query(None, max_length=300),
    model: str | None = Query(None, max_length=300),
    recipe: str | None = Query(None, max_length=300),
    strategy: str | None = Query(None, max_length=300),
    days: int = DEFAULT_DAYS,
) -> FilterForm:
    if days not in DAYS:
        raise HTTPException(422, f"days is {days}: choose {', '.join(map(str, DAYS[:-1]))} or {DAYS[-1]}")
    today = datetime.now(UTC).date()
    names = {"gpu": gpu, "model": model, "recipe": recipe, "strategy": strategy}
    try:
        filters = Filters(
            gpu_name=gpu, model=model, recipe=recipe, strategy=strategy, since=today - timedelta(days=days - 1)
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise HTTPException(422, f"{problem['loc'][0]}: {problem['msg'].removeprefix('Value error, ')}") from None
    query = {name: value for name, value in names.items() if value}
    return FilterForm(filters, days, today, query | ({"days": str(days)} if days != DEFAULT_DAYS else {}))
