"""Makes a DAG of each campaign file in the folder that TRAINBENCH_CAMPAIGNS names."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from trainbench.orchestration.dag_factory import BUILDERS, Suite
from trainbench.orchestration.dag_ids import DagIdTaken
from trainbench.params.campaign_kind import CampaignKind
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file, with_campaign
from trainbench.settings.environment import CAMPAIGNS_ENV, DAGS, Settings, campaign_files, read_settings

NAME = r"[a-z0-9][a-z0-9_.-]{0,99}"


def campaign_dags() -> dict[str, DAG]:
    """Id -> DAG of each file that is right; in a worker only the one whose task is about to run, which may raise."""
    settings, asked = read_settings(), get_parsing_context().dag_id
    dags = {}
    for path in campaign_files(settings.campaigns):
        dag_id = f"{settings.dag_prefix}{path.stem}"
        if asked in (None, dag_id):
            try:
                dags[dag_id] = _dag(path, settings)
            except Exception:  # `refuse_wrong_files` shows it
                if asked:
                    raise
    return dags


def refuse_wrong_files() -> None:
    """Raise CampaignFileError with a line for each file that makes no DAG.

    Not where DAGs are made: there Airflow takes away the DAGs of all files as soon as one of them is wrong.
    """
    settings, wrong = read_settings(), []
    if settings.campaigns and not settings.campaigns.is_dir():
        raise CampaignFileError(f"{CAMPAIGNS_ENV} is '{settings.campaigns}': no such folder here")
    for path in campaign_files(settings.campaigns):
        try:
            _dag(path, settings)
        except (CampaignFileError, DagIdTaken) as error:
            wrong.append(str(error))
        except Exception as error:  # of the parameters together with those of this launcher, or a defect
            wrong.append(f"{path}: {error}")
    if wrong:
        raise CampaignFileError("\n".join(wrong))


def _dag(path: Path, settings: Settings) -> DAG:
    if not re.fullmatch(NAME, path.stem):
        rule = "lower-case letters, digits, '_', '-' and '.', at most 100"
        raise CampaignFileError(f"{path}: its name becomes the DAG's id: {rule}")
    if path.stem in DAGS:
        raise CampaignFileError(f"{path}: trainbench has a DAG '{path.stem}' of its own: give the file another name")
    stems = Counter(each.stem for each in campaign_files(settings.campaigns))
    if stems[path.stem] > 1:
        raise CampaignFileError(f"{path}: .yaml and .yml make two DAGs '{path.stem}': remove one of the files")
    file = read_campaign_file(path)
    text = file.description.replace("**", "") or f"The campaign {file.name}."
    suite = Suite(
        dag_id=file.name,
        title=file.name,
        campaign_kind=file.kind,
        schedule=file.schedule,
        doc=f"**{text}**\n\nThe suite `{file.suite}`, as the campaign file `{path}` sets it.",
        tags=("trainbench", "campaign", file.suite),
        timeout_h=8.0 if file.kind is CampaignKind.NODES else 24.0,
        values=file.values,
    )
    dag = BUILDERS[file.kind](suite, with_campaign(file, settings))
    dag.validate()  # type: ignore[no-untyped-call] # here, where its error is this file's alone
    return dag
