"""Label selectors, by which a cluster lists some of its nodes, in Kubernetes' own syntax (RFC 1123 for the names)."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

SUBDOMAIN_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
SUBDOMAIN = rf"^{SUBDOMAIN_PART}(\.{SUBDOMAIN_PART})*$"
LABEL_KEY = rf"({SUBDOMAIN_PART}(\.{SUBDOMAIN_PART})*/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?"
REQUIREMENT = (
    rf" *(!? *{LABEL_KEY}|{LABEL_KEY} *(=|==|!=) *{LABEL_VALUE}"
    rf"|{LABEL_KEY} +(in|notin) *\( *{LABEL_VALUE}( *, *{LABEL_VALUE})* *\)) *"
)
LabelKey = Annotated[str, StringConstraints(max_length=317, pattern=rf"^{LABEL_KEY}$")]
LabelSelector = Annotated[str, StringConstraints(max_length=1000, pattern=rf"^{REQUIREMENT}(,{REQUIREMENT})*$")]
