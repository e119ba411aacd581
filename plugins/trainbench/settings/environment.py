"""Settings of this installation. Each is an environment variable, TRAINBENCH_ and the field's name in capitals, or an
option of that name in the section `[trainbench]` of Airflow's configuration, which is read by Airflow's rules without
importing Airflow. Only a value that Airflow has to fetch, by a command or from a secrets backend, is asked of Airflow.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails, from_json
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from bench_image.contract.spec import RESOURCE_NAME, NodeName
from trainbench.core.close_matches import did_you_mean
from trainbench.core.label_selector import LabelKey
from trainbench.core.user_error import UserError
from trainbench.params.campaign_kind import CAMPAIGN_SUFFIXES, SUITES
from trainbench.params.campaign_params import WORLD_SIZES
from trainbench.params.refusals import close_choice, reason
from trainbench.pods.local_pods import LocalImage
from trainbench.pods.manifests import PodSettings
from trainbench.settings.channels import EXAMPLE, Channels, channel_fault

SECTION = "trainbench"
ENV = f"AIRFLOW__{SECTION.upper()}__"
FETCHED = ("_cmd", "_secret")  # suffixes of options that say how Airflow gets the value of a sensitive option
SENSITIVE = frozenset({"history_url", "notify"})  # a password, and addresses that are tokens


class SectionError(UserError, ValueError):
    """Airflow's configuration cannot be read, or cannot give a value."""


class Given(NamedTuple):
    """`text`: None: Airflow has to fetch it. `where`: the name of a variable, or the option and its file."""

    text: str | None
    where: str


def options_given(environ: Mapping[str, str] = os.environ) -> dict[str, Given]:
    """Option -> what is given for it: by Airflow's variables, else by its file. An empty text counts as none. Raises
    SectionError.
    """
    home = environ.get("AIRFLOW_HOME", "~/airflow")
    path = _expanded(environ.get("AIRFLOW_CONFIG") or os.path.join(home, "airflow.cfg"))  # noqa: PTH118 - as Airflow
    variables = {name: text for name, text in environ.items() if name.upper().startswith(ENV)}
    places = [
        *((name.upper().removeprefix(ENV).lower(), _expanded(text), name) for name, text in variables.items()),
        *((name, text, f"{name} in [{SECTION}] of {path}") for name, text in _section(path).items()),
    ]
    found: dict[str, Given] = {}
    for of_file in (False, True):
        here = [place for place in places if place[1] and (place[2] not in variables) is of_file]
        for option, text, where in sorted(here, key=lambda place: _base(place[0]) != place[0]):  # the value first
            base = _base(option)
            found.setdefault(base, Given(text if base == option else None, where))
    return found


def fetched(option: str, where: str) -> str:
    """The value of a sensitive option as Airflow fetches it. Raises SectionError."""
    try:
        from airflow.configuration import conf

        text = conf.get(SECTION, option, fallback=None)
    except ImportError:
        raise SectionError(f"{where} needs Airflow, which this Python lacks: set {ENV}{option.upper()}") from None
    except Exception as error:  # of the command, or of any secrets backend
        raise SectionError(f"{where} gives no value: {error}") from None
    if not text:
        raise SectionError(
            f"{where} gives no value: the command or the secret must have one, and trainbench be installed as a package"
        )
    return str(text).strip()


def _base(option: str) -> str:
    """The sensitive option of which this one says how Airflow fetches it; else the option itself."""
    bases = (option.removesuffix(suffix) for suffix in FETCHED)
    return next((base for base in bases if base != option and base in SENSITIVE), option)


def _section(path: str) -> Mapping[str, str]:
    try:
        stat = os.stat(path)  # noqa: PTH116
    except OSError:  # there is none
        return {}
    return _parsed(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _parsed(path: str, _changed_ns: int, _num_bytes: int) -> Mapping[str, str]:
    """The section's options. A page reads settings at each request, so the file is read once after each change."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
        if f"[{SECTION}]" not in text:
            return {}
        parser = configparser.ConfigParser()
        parser.read_string(text, path)
        if not parser.has_section(SECTION):  # in a comment
            return {}
        return {name: _expanded(value) for name, value in parser.items(SECTION) if name not in parser.defaults()}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise SectionError(f"{path} cannot be read: {' '.join(str(error).split())}; a % is written %%") from None


def _expanded(text: str) -> str:
    """With `~` and variables replaced, as Airflow does."""
    while (expanded := os.path.expanduser(os.path.expandvars(text))) != text:  # noqa: PTH111
        text = expanded
    return text


PREFIX = "TRAINBENCH_"
CAMPAIGNS_ENV, NOTIFY_ENV = f"{PREFIX}CAMPAIGNS", f"{PREFIX}NOTIFY"
JSON_EXAMPLES = {
    "volumes": '[{"mount_path": "/data", "source": {"persistentVolumeClaim": {"claimName": "datasets"}}}]',
    "compile_cache": '{"persistentVolumeClaim": {"claimName": "kernels"}}',
    "notify": EXAMPLE,
}
SUBDOMAIN_RULE = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
LABEL_RULE = "at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"
KUBERNETES_NAMES = {
    "namespace": LABEL_RULE,
    "service": f"{LABEL_RULE}, first a letter",
    "instance": "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    "node_selector": "a label selector is such as pool=gpu,tier!=dev",
    "topology_label": "a label's name is such as topology.kubernetes.io/zone",
    "image": "a reference such as registry.example/ml/bench:0.2.0, without spaces",
    **dict.fromkeys(("image_pull_secret", "service_account", "priority_class"), SUBDOMAIN_RULE),
    **dict.fromkeys(("local_nodes", "quarantine"), SUBDOMAIN_RULE),
}
WEEK_S = 7 * 86_400
MAX_GPUS = 65_536
MAX_RETENTION_DAYS = 36_500
# Read by other programs: the image, scripts, compose files and tests.
OTHER_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "AIRFLOW_IMAGE", "CHROMIUM", "GPU_UUID", "LOCAL_IMAGE", "OUTPUT_DIR", "PARENT_PID", "POD", "PRODUCTS", "SPEC",
        "STARTED_AT", "TEMPLATE_DIGEST", "TEST_DEMO", "TEST_POSTGRES_URL", "TURNS",
    )
)  # fmt: skip
# What Kubernetes sets in every pod for a Service named trainbench-...
OF_A_SERVICE = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$", re.I)
DAGS = (*SUITES, "cost_report", "housekeeping", "metrics")
ROOT = Path(__file__).resolve().parents[3]
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()  # else installed by pip: ROOT is where packages lie
CHECKOUT_PYTHON = str(ROOT / ".venv-image" / "bin" / "python")
OWN_PYTHON = sys.executable if find_spec("torch") else ""  # "": it lacks the training stack
LOCAL_REMEDY = (
    "run `make setup`, which makes it, or set TRAINBENCH_LOCAL_PYTHON"
    if IS_CHECKOUT
    else "install trainbench with the extra `image` into an environment of its own, and set TRAINBENCH_LOCAL_PYTHON to "
    "that environment's Python"
)


class Launcher(StrEnum):
    KUBERNETES = "kubernetes"
    LOCAL = "local"


class Housekeeping(StrEnum):
    """The things that the daily housekeeping deletes; it reports the others."""

    REPORT = "report"  # nothing
    RELEASE = "release"  # pods that hold or await GPUs for a DAG run that is over
    DELETE = "delete"  # those, ended pods and expired artefacts


class KeepAway(StrEnum):
    """How a node that is confirmed to be red is marked, so that other work keeps away."""

    OFF = "off"  # not at all
    LABEL = "label"
    TAINT = "taint"


class SettingsError(UserError, ValueError):
    """A variable has a value that is not allowed. The message names the variable, the value and what is allowed."""


class Settings(PodSettings, BaseSettings):
    """All variables, with their defaults and limits. The descriptions are the table in docs/settings.md."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",  # TRAINBENCH_SCHEDULE_<DAG ID>
        env_nested_max_split=1,
        enable_decoding=False,  # the validators below parse lists and JSON
    )

    launcher: Launcher = Field(
        Launcher.KUBERNETES,
        description="`kubernetes` runs pods on a cluster; `local` runs the same Pod manifests as processes of this "
        "machine",
    )
    local_nodes: tuple[NodeName, ...] = Field(
        (),
        description="names of the local launcher's nodes, with commas; else this machine, on a CPU `node-1` to "
        "`node-4`",
    )
    local_python: str = Field(
        CHECKOUT_PYTHON if IS_CHECKOUT else OWN_PYTHON,
        description="the local launcher's Python, which has PyTorch; else that of `.venv-image`; after an installation "
        "by pip the one that runs trainbench",
    )
    local_pythonpath: str = Field(
        str(ROOT) if IS_CHECKOUT else "",
        description="the folder in which that Python finds `bench_image`; else the checkout; after an installation by "
        "pip its own packages",
    )
    store: str | None = Field(
        None,
        description="folder, `s3://` or `gs://` URL for results and reports; else `$AIRFLOW_HOME/trainbench/store`; "
        "without that variable `.trainbench/store` in a checkout, else `~/airflow/trainbench/store`",
    )
    history_url: str | None = Field(
        None,
        description="SQLAlchemy URL of the history; else `history.sqlite` in the store. PostgreSQL needs the "
        "extra `postgresql`",
    )
    kubernetes_connection: str = Field(
        "kubernetes_default",
        description="Airflow connection to the cluster; without one, Airflow's own service account is used",
    )
    deferrable: bool = Field(
        True,
        description="`true`: a pod that is waited for takes no worker slot; `false`: a worker waits for it",
    )
    queue_timeout_s: int = Field(
        3600, ge=1, le=WEEK_S, description="seconds that a pod may wait for GPUs on its node before it counts as `busy`"
    )
    start_timeout_s: int = Field(
        900,
        ge=1,
        le=WEEK_S,
        description="seconds in which a pod on its node must start, with the pull of its image",
    )
    quarantine: tuple[NodeName, ...] = Field(
        (),
        description="nodes that are not benchmarked, with commas; the label `trainbench.io/quarantine=<reason>` does "
        "the same",
    )
    world_sizes: tuple[int, ...] = Field(
        WORLD_SIZES, description="numbers of GPUs that the forms of `strategy_scaling` and `hardware_survey` offer"
    )
    topology_label: LabelKey | None = Field(
        None,
        description="label of the nodes that names their NVLink domain, rack or leaf switch, for "
        "[interconnect](interconnect.md)",
    )
    dag_prefix: str = Field(
        "",
        description="prefix of all DAG ids, such as `trainbench_`; set it before the first run, because the history "
        "knows campaigns by their DAG's id ([own-airflow.md](own-airflow.md#dag-ids))",
    )
    campaigns: Path | None = Field(
        None,
        description="absolute path of a folder with campaign files; each becomes a DAG of its name "
        "([campaign-files.md](campaign-files.md))",
    )
    schedule: dict[str, str] = Field(
        {},
        description="a cron expression or `none`, for the DAG with this id (without the prefix); else the DAG's own, "
        "with the local launcher none",
    )
    prices: tuple[Path, ...] = Field(
        (), description="files with your own price tables, with commas; they override the shipped table"
    )
    notify: Channels = Field(
        (), description="JSON: mail, Slack or webhooks through Airflow's connections ([alerts.md](alerts.md))"
    )
    fresh_h: int = Field(
        36, ge=1, le=8760, description="hours after which a node's last verdict is too old to call the node well"
    )
    housekeeping: Housekeeping = Field(
        Housekeeping.RELEASE,
        description="what scheduled runs of the DAG `housekeeping` delete. `release`: pods that hold or await GPUs for "
        "a DAG run that is over; `delete`: also ended pods and expired artefacts; `report`: nothing",
    )
    keep_away: KeepAway = Field(
        KeepAway.OFF,
        description="marks a node that is confirmed to be red, until it is well: `taint` or `label` "
        "`trainbench.io/breach` ([keep-bad-nodes-away.md](keep-bad-nodes-away.md))",
    )
    keep_away_max_pct: int = Field(
        10, ge=1, le=100, description="percent of the GPU nodes that may be marked at the same time, rounded down"
    )
    retention_days: int = Field(
        180, ge=0, le=MAX_RETENTION_DAYS, description="days for which campaigns and cost reports are kept; 0: for ever"
    )

    @field_validator("local_nodes", "quarantine", "prices", "gpu_resources", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator("world_sizes", mode="before")
    @classmethod
    def _split_sizes(cls, value: Any) -> Any:
        sizes = [size.strip() for size in value.split(",")] if isinstance(value, str) else list(map(str, value))
        if not all(size.isdecimal() and 1 <= int(size) <= MAX_GPUS for size in sizes):
            raise ValueError("give numbers of GPUs, for example 1,2,4")
        return tuple(sorted(set(map(int, sizes))))

    @field_validator(*JSON_EXAMPLES, mode="before")
    @classmethod
    def _parse_json(cls, value: Any) -> Any:
        return from_json(value) if isinstance(value, str) else value

    @field_validator("gpu_resources")
    @classmethod
    def _check_gpu_resources(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("give at least one resource such as nvidia.com/gpu")
        for name in value:
            if not re.match(RESOURCE_NAME, name.replace("*", "x")):
                raise ValueError(f"'{name}' is not a resource such as nvidia.com/gpu or nvidia.com/mig-*")
            if name.endswith(".shared"):
                raise ValueError(f"'{name}' is a share of a GPU that others use at the same time: nothing to measure")
        return value

    @field_validator("dag_prefix")
    @classmethod
    def _check_dag_prefix(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{0,50}", value):
            raise ValueError("give at most 50 letters, digits, dots, dashes and underscores, such as trainbench_")
        return value

    @field_validator("campaigns")
    @classmethod
    def _check_campaigns(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("give an absolute path: each part of Airflow has a working folder of its own")
        return value

    @property
    def local_image(self) -> LocalImage:
        return LocalImage(python=self.local_python, pythonpath=self.local_pythonpath, remedy=LOCAL_REMEDY)

    @property
    def fresh(self) -> timedelta:
        return timedelta(hours=self.fresh_h)

    def cron(self, name: str, default: str | None) -> str | None:
        """The schedule of the DAG `name`, without prefix; None: by hand only. The local launcher has no default."""
        cron = self.schedule.get(name, default if self.launcher is Launcher.KUBERNETES else None)
        return None if cron is None or cron.lower() == "none" else cron


def default_store(environ: Mapping[str, str] = os.environ) -> Path:
    """An absolute folder that every process of one installation agrees on, whatever its working directory."""
    home = environ.get("AIRFLOW_HOME") or ("" if IS_CHECKOUT else "~/airflow")
    folder = Path(os.path.expandvars(home)).expanduser().absolute() / "trainbench" if home else ROOT / ".trainbench"
    return folder / "store"


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """By the variables TRAINBENCH_..., then by Airflow's configuration: its variables, then its file. An empty value
    counts as none. Raises SettingsError: for a wrong value, for a name close to a setting's, and where both kinds of
    variables give a setting differently.
    """
    texts = {name.lower(): text for name, text in environ.items() if name.upper().startswith(PREFIX) and text}
    places = {name.lower(): name for name in environ}
    try:
        options = options_given(environ)
        folder = texts.get(CAMPAIGNS_ENV.lower()) or (options["campaigns"].text if "campaigns" in options else None)
        dag_ids = (*DAGS, *(file.stem for file in campaign_files(folder)))
        for name in sorted(environ):
            _refuse_misspelt(name, dag_ids)
        for option, given in options.items():
            _refuse_other(option, given.where, dag_ids)
            name = PREFIX.lower() + option
            if name not in texts:
                texts[name] = fetched(option, given.where) if given.text is None else given.text
                places[name] = given.where
            elif given.where.upper().startswith(ENV) and given.text != texts[name]:
                raise SettingsError(f"{places[name]} and {given.where} are both set, and differ: unset one of them")
    except SectionError as error:
        raise SettingsError(str(error)) from None
    source = EnvSettingsSource(Settings)
    source.env_vars = texts
    try:
        return Settings(_build_sources=((source,), {}))
    except ValidationError as error:
        raise SettingsError(_sentence(error.errors(include_url=False)[0], texts, places)) from None


def campaign_files(folder: Path | str | None) -> list[Path]:
    """Those of the folder of TRAINBENCH_CAMPAIGNS, by name; none where it is not set or cannot be read."""
    try:
        return sorted(path for path in Path(folder).iterdir() if path.suffix in CAMPAIGN_SUFFIXES) if folder else []
    except (OSError, ValueError):
        return []


def _refuse_misspelt(name: str, dag_ids: Collection[str]) -> None:
    """Refuse a variable whose name is close to a setting's: others may be another program's."""
    if not name.upper().startswith(PREFIX) or name.upper() in OTHER_VARIABLES or OF_A_SERVICE.search(name):
        return
    given = name[len(PREFIX) :].lower()
    if hint := _hint(given, dag_ids):
        written = re.sub(r"'([\w.-]+)'", lambda known: f"'{PREFIX}{known[1].upper()}'", hint)
        raise SettingsError(f"{name:.200} is no setting{written}: correct its name, or unset it")


def _refuse_other(option: str, where: str, dag_ids: Collection[str]) -> None:
    """Refuse an option of Airflow's section, which is ours alone, that is no setting."""
    is_schedule = option.startswith("schedule_") and not _hint(option, dag_ids)
    if option not in Settings.model_fields and not is_schedule:
        raise SettingsError(f"{where:.300} is no setting{_hint(option, dag_ids)}: correct its name, or remove it")


def _hint(given: str, dag_ids: Collection[str]) -> str:
    """ " (did you mean 'fresh_h'?)"; empty for a setting, and for a name that is close to none."""
    if given in Settings.model_fields:
        return ""
    if given.startswith("schedule_"):
        dag_id = given.removeprefix("schedule_")
        return "" if dag_id in dag_ids else re.sub(r"'([\w.-]+)'", r"'schedule_\1'", did_you_mean(dag_id, dag_ids))
    begins = [field for field in Settings.model_fields if given.startswith(f"{field}_")]
    return did_you_mean(given, Settings.model_fields) or (f" (did you mean '{begins[0]}'?)" if begins else "")


def _sentence(problem: ErrorDetails, texts: Mapping[str, str], places: Mapping[str, str]) -> str:
    """ "TRAINBENCH_DEFERRABLE is 'maybe': Input should be a valid boolean, unable to interpret input"."""
    field = str(problem["loc"][0])
    name = PREFIX.lower() + field
    where, said = places.get(name, name.upper()), reason(problem)
    if field == "notify":
        return f"{where}: {channel_fault(problem)}; give JSON such as {EXAMPLE}"
    if field in JSON_EXAMPLES:
        place = "".join(f"{part}: " for part in problem["loc"][1:])
        said = f"{place}{said}; give JSON such as {JSON_EXAMPLES[field]}"
    elif problem["type"] == "string_pattern_mismatch":
        said = f"Kubernetes refuses it: {KUBERNETES_NAMES[field]}"
    return f"{where} is '{texts.get(name, problem['input'])!s:.200}'{close_choice(problem)}: {said}"
