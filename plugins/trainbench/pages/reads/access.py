"""The reader of a page and the DAGs that they may read, as Airflow's auth manager decides."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel, DagTag
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request
from sqlalchemy import select

from trainbench.results.campaign import WITHOUT_DAG

TAG = "trainbench"  # every DAG of ours has it
MAX_BODY_BYTES = 16_384


@dataclass(frozen=True)
class Reader:
    """The reader. `dag_ids`: readable DAGs; includes the command line's campaigns for readers of any DAG of ours."""

    user: BaseUser
    dag_ids: frozenset[str]
    sees_ours: bool  # may see any DAG of ours

    def may_acknowledge(self, dag_id: str) -> bool:
        """Whether the reader may change the DAG's runs; for campaigns without a DAG: the runs of any DAG of ours."""
        dag_ids = _ours(self.dag_ids) if dag_id in WITHOUT_DAG else {dag_id} & self.dag_ids
        return any(
            get_auth_manager().is_authorized_dag(
                method="PUT",
                access_entity=DagAccessEntity.RUN,
                details=DagDetails(id=each, team_name=DagModel.get_team_name(each)),
                user=self.user,
            )
            for each in dag_ids
        )


def reader(user: BaseUser = Depends(get_user)) -> Reader:
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    sees_ours = bool(_ours(readable))
    return Reader(user, frozenset(readable) | (WITHOUT_DAG if sees_ours else frozenset()), sees_ours)


def own_page(request: Request) -> None:
    """Refuse a write from another site, which can neither set our header nor send JSON without a preflight."""
    headers = request.headers
    is_json = headers.get("content-type", "").split(";")[0].strip().lower() == "application/json"
    if headers.get("x-trainbench") != "1" or not is_json:
        raise HTTPException(403, "this call needs the header X-Trainbench: 1 and a JSON body: use the page's button")
    if not _is_own_site(request):
        raise HTTPException(403, "this call came from another site and was not carried out: use the page's button")
    length = headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        raise HTTPException(413, f"the request must give its length, and be at most {MAX_BODY_BYTES} bytes")


def _is_own_site(request: Request) -> bool:
    """Whether a request is from our site, by Sec-Fetch-Site if present, else by its origin: this server or its public
    address.
    """
    if site := request.headers.get("sec-fetch-site"):
        return site == "same-origin"
    origin = request.headers.get("origin")
    public = urlsplit(conf.get("api", "base_url", fallback="") or "").netloc
    return origin is None or urlsplit(origin).netloc in {request.headers.get("host"), public} - {None, ""}


def _ours(dag_ids: Collection[str]) -> set[str]:
    with create_session() as session:
        tagged = session.scalars(select(DagTag.dag_id).where(DagTag.name == TAG)).all()
    return set(tagged) & set(dag_ids)
