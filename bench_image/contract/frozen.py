"""The base class of the contract's models, and its error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ContractError(ValueError):
    """A spec or a result from outside breaks the contract; the message names the field and what is allowed."""


class Frozen(BaseModel):
    # NaN and infinity are refused: json.dumps would write them as NaN and Infinity, which are not JSON.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
