"""Writes what is made from the code: docs/settings.md, docs/parameters.md, docs/models.md, docs/commands.md, the
JSON Schema of campaign files, and the file of the settings that Airflow reads.

PYTHONPATH=.:plugins python scripts/reference_docs.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from pydantic import create_model
from pydantic.fields import FieldInfo

from bench_image.contract.decoder_config import KINDS
from bench_image.contract.flops import flops_per_token, num_parameters
from bench_image.contract.frozen import STRICT
from bench_image.contract.model_shapes import MODELS, SOURCES, ModelShape
from bench_image.contract.options import Recipe
from trainbench.cli.app import app
from trainbench.cli.params import allowed, value_text
from trainbench.params.campaign_kind import SUITES
from trainbench.params.campaign_params import FIELDS, SECTIONS, applies_to, form
from trainbench.planning.planners import PLANNERS
from trainbench.settings import provider_info
from trainbench.settings.campaign_file import PLACES, CampaignFile
from trainbench.settings.environment import DAGS, PREFIX, SECTION, SENSITIVE, Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
WRITTEN_BY = "<!-- written by scripts/reference_docs.py -->"
SETTINGS = f"""\
# Settings

Settings of an installation. Give the same ones to all components of Airflow; `trainbench` on the command line reads
them too. Each may stand in three places:

1. in the environment variable of the table, such as `TRAINBENCH_STORE`;
2. in Airflow's own variable, `AIRFLOW__TRAINBENCH__STORE`, which must not differ from the first;
3. as the option `store` of the section `[trainbench]` in `airflow.cfg`: it counts last. After an installation by pip
   `airflow config list --section trainbench` lists all.

An empty value counts as none. Airflow hides `history_url` and `notify`, and also takes `history_url_cmd` and
`history_url_secret`.
{WRITTEN_BY}

"""
PARAMETERS = f"""\
# Parameters

What a run can be told: in the trigger form, by `--set NAME=VALUE` of `trainbench plan`, `run` and `check`, and by the
`conf` of Airflow's [API and command line](airflow-api.md). The first default is that of the nightly check, another
suite's stands behind its letter: N `node_consistency`, S `strategy_scaling`, C `config_diagnosis`, H `hardware_survey`,
I `interconnect`. The last column names the suites that have the parameter; empty: all five. `trainbench run --device
cpu` has smaller defaults: `trainbench params --cpu`.
{WRITTEN_BY}
"""
MODELS_PAGE = f"""\
# Models

The parameter `model` takes one of three:

- a name of the table below;
- the path of a `config.json`, or of its folder, with a slash in it. The command line, or a worker of Airflow, reads it;
- a hub id with its commit, `organisation/name@commit`. Only the `config.json` is read; `HF_ENDPOINT` and `HF_TOKEN`
  count.

<!-- not run: needs a GPU -->
```console
$ trainbench run --device cuda --model qwen3-8b
$ trainbench run --device cuda --model ./my-model/config.json
```

On an H200 the nightly check has a known level for `mistral-7b` and for `llama-3.1-8b` (`trainbench levels list`): there
a single node is judged in its first night.

A configuration that is the same work as a name counts as that name. Weights are random unless the parameter `weights`
says otherwise. Of a model that sees or hears as well, the language model is trained. Code that a model brings along
(`auto_map`) is never run.

Any decoder trains that the image's transformers builds by `AutoModelForCausalLM`, by its `model_type`:

- {", ".join(f"`{kind}`" for kind in KINDS)}: parameters, FLOPs and memory by
  formula. `tuned` makes no CUDA graph of a mixture of experts, of a softmax with a sink, or of a sliding window shorter
  than the sequence. LoRA adapts the attention of a mixture of experts.
- Any other: parameters are counted in the pod, FLOPs and MFU are unknown, memory is guessed. LoRA and QLoRA are
  refused, and `tuned` does less.

A model that the image cannot build, or weights that no pod can read, are one alarm of the run, with the error; no node
is judged by it.

A run's `execution` says what `tuned` left out. `bench_image/contract/models.json` has the configurations of today's
models with their sources.
{WRITTEN_BY}

"""
NAMES = r"tiny, mistral-7b, .*?mistral-7b-instruct-v0\.3"  # of all models, as a form lists them
LEFT_OUT = ("--json", "--help", "--store", "--kubeconfig", "--context")  # of the table of commands
IN_FORM = ("default", "section", "form_name")  # of a field, for the trigger form
COMMANDS = f"""\
# Commands

`trainbench COMMAND --help` explains each option. The table leaves out `--help` and `--json`, which every command takes,
`--store` (another store), `--kubeconfig` and `--context` (another cluster).
[command-line.md](command-line.md) shows them in use.
{WRITTEN_BY}

"""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def settings_page() -> str:
    """The launcher first, then the rest by name."""
    fields = sorted(Settings.model_fields.items(), key=lambda item: (item[0] != "launcher", item[0]))
    rows = ((_variable(name), _default(field), field.description or "") for name, field in fields)
    return SETTINGS + table(("variable", "default", "what it sets"), rows)


def _variable(name: str) -> str:
    return f"`{PREFIX}{name.upper()}{'_<DAG ID>' if name == 'schedule' else ''}`"


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value in (None, (), {}, "") or ("/" in str(value) and Path(str(value)).is_absolute()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(map(str, value)) if isinstance(value, tuple) else value}`"


def provider_file() -> str:
    """The provider's metadata, by Airflow's schema `provider_info.schema.json`."""
    types: Mapping[Any, str] = {bool: "boolean", int: "integer"}
    options: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        for option in [f"schedule_{dag}" for dag in DAGS] if name == "schedule" else [name]:
            options[option] = {
                "description": re.sub(r" ?\(?\[[^]]*\]\([^)]*\)\)?", "", field.description or ""),
                "version_added": None,
                "type": types.get(field.annotation, "string"),
                "example": None,
                "default": _default(field).strip("`") or None,
                "sensitive": name in SENSITIVE,
            }
    about = "Benchmarks LLM training on every GPU node, judges the nodes and prices the work"
    info = {
        "package-name": "trainbench",
        "name": "trainbench",
        "description": about,
        "integrations": [{"integration-name": "trainbench", "tags": ["software"]}],
        "operators": [{"integration-name": "trainbench", "python-modules": ["trainbench.airflow"]}],
        "config": {SECTION: {"description": f"{about}: settings of the installation.", "options": options}},
    }
    return json.dumps(info, indent=1) + "\n"


def parameters_page() -> str:
    forms = {kind: form(PLANNERS[kind].starts_with(locally=False)) for kind in SUITES.values()}
    letters = dict(zip(SUITES.values(), "NSCHI", strict=True))
    sections = {
        section: [name for name, field in form().items() if field["section"] == section] for section in SECTIONS
    }
    head = ("parameter", "default", "meaning", "of")
    return PARAMETERS + "".join(
        f"\n## {section}\n" + table(head, (_parameter(name, forms, letters) for name in names))
        for section, names in sections.items()
    )


def _parameter(name: str, forms: Mapping[Any, Any], letters: Mapping[Any, str]) -> Iterator[str]:
    kinds = [kind for kind in letters if applies_to(name, kind)]
    field = forms[kinds[0]][name]
    yield f"`{name}`"
    own = {letters[kind]: forms[kind][name]["default"] for kind in kinds[1:]}
    changed = (f"{letter} {value_text(value)}" for letter, value in own.items() if value != field["default"])
    yield ", ".join(filter(None, (value_text(field["default"]), *changed)))
    meaning = " ".join(filter(None, (field["description_md"], _allowed(field))))
    for names, link in (
        (rf"\*{NAMES}\*", "Any of [models.md](models.md)."),
        ("A name, such as", "A [name](models.md), such as"),
    ):
        meaning = re.sub(names, link, meaning)
    yield meaning
    yield "" if len(kinds) == len(letters) else "".join(letters[kind] for kind in kinds)


def _allowed(field: Mapping[str, Any]) -> str:
    text = allowed(field)
    is_told = all(f"`{choice}`" in field["description_md"] for choice in text.split(", "))
    return "" if not text or is_told else f"*{text}*"


def models_page() -> str:
    head = ("model", "kind", "parameters", "of them multiplied for a token", "positions", "published")
    return MODELS_PAGE + table(head, (_model(name, shape) for name, shape in MODELS.items()))


def _model(name: str, shape: ModelShape) -> Iterator[str]:
    """At a sequence length of 0 attention takes no FLOPs, and what is left is 6 for each multiplied parameter."""
    flops = flops_per_token(shape, Recipe.FULL, 0, None, False)
    yield f"`{name}`"
    yield shape.kind
    yield f"{num_parameters(shape):,}"
    yield f"{flops.model / 6:,.0f}" if flops else ""
    yield f"{shape.max_positions:,}"
    yield SOURCES.get(name, {}).get("published", "")


def commands_page() -> str:
    command = typer.main.get_command(app)
    return COMMANDS + table(("command", "does", "options"), sorted(_commands(command, ())))


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    children: Mapping[str, Any] = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _commands(child, (*words, name))
    if words and (not children or command.invoke_without_command):
        arguments = [part for part in command.params if part.param_type_name == "argument"]
        names = [part.name.upper() if part.required else f"[{part.name.upper()}]" for part in arguments]
        options = [max(part.opts, key=len) for part in command.params if part.param_type_name == "option"]
        kept = (f"`{option}`" for option in options if option not in LEFT_OUT)
        yield (
            f"`{' '.join((*words, *names))}`",
            " ".join(command.help.split()).partition(". ")[0].replace("|", "\\|"),
            ", ".join(kept),
        )


def campaign_schema() -> str:
    """JSON Schema of a campaign file, for editors. It names the parameters of all suites; the reader knows which has
    which.
    """
    own: dict[str, Any] = {
        name: (field.info.annotation, field.info) for name, field in FIELDS.items() if name not in PLACES
    }
    parameters = create_model("Parameters", __config__=STRICT, **own)
    described = CampaignFile.model_fields["parameters"]
    whole = create_model("CampaignFile", __base__=CampaignFile, parameters=(parameters, described))
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = about | _for_editors(whole.model_json_schema()) | {"title": "trainbench campaign file"}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _for_editors(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _for_editors(each) for name, each in part.items() if name not in IN_FORM}
    return [_for_editors(each) for each in part] if isinstance(part, list) else part


PAGES = {
    DOCS / "schemas" / "campaign.json": campaign_schema,
    DOCS / "settings.md": settings_page,
    DOCS / "parameters.md": parameters_page,
    DOCS / "models.md": models_page,
    DOCS / "commands.md": commands_page,
    provider_info.FILE: provider_file,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page())
