"""What goes over HTTP, as models: they check what comes in, and describe both ways in OpenAPI."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.json_schema import models_json_schema

import gpuyard
from gpuyard.errors import InputError
from gpuyard.serve.state import ClusterState, Job, Name

_READS_STATE = TypeAdapter(ClusterState)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StateIn(_Document):
    """For the schema alone: states are read without this frame."""

    state: ClusterState


class HostQuestion(_Document):
    """Which host a job should start on."""

    job: Name | Job
    """The job; its id will do if the state has it."""
    candidates: Annotated[tuple[Name, ...], Field(max_length=20_000)] | None = None
    """Nodes to choose from; null: any."""
    state: ClusterState | None = None
    """The cluster now; null: as it was last sent or observed."""


class GpusOn(_Document):
    """GPUs on a node."""

    node: str
    gpus: int


class Rank(_Document):
    """A job's place in the order."""

    job: str
    score: float | None


class StartPlan(_Document):
    """A start that the policy wants."""

    job: str
    nodes: tuple[GpusOn, ...]
    stops: tuple[str, ...]


class StartAction(_Document):
    """Start a job on these nodes, after these others were requeued."""

    action: Literal["start"]
    job: str
    nodes: tuple[GpusOn, ...]
    stops: tuple[str, ...]
    decision: str


class ReorderAction(_Document):
    """Give a waiting job a priority; larger goes first."""

    action: Literal["reorder"]
    job: str
    priority: int
    decision: str


class GiveBackAction(_Document):
    """Release a job; it is none of the agent's any more."""

    action: Literal["give-back"]
    job: str
    why: str


class Refusal(_Document):
    """What the guard did not let pass, and why."""

    job: str
    action: str
    rule: str
    words: str


class Left(_Document):
    """A waiting job that the policy does not decide on, and why."""

    job: str
    why: str


class DecisionOut(_Document):
    """What to do now."""

    round: int
    mode: str
    control: str
    policy: str
    decider: str
    cause: str
    """Why the policy did not decide; empty if it did."""
    words: str
    state_hash: str
    order: tuple[Rank, ...]
    starts: tuple[StartPlan, ...]
    """What the policy or the fallback wants to start, before the guard; in every mode."""
    actions: tuple[StartAction | ReorderAction | GiveBackAction, ...]
    """What to do, after the guard, in this order; empty in the modes that do not act."""
    refused: tuple[Refusal, ...]
    left: tuple[Left, ...]


class HostAnswer(_Document):
    """Where to start a job."""

    job: str
    host: str | None
    """The first node; null: the scheduler's own choice should stand."""
    nodes: tuple[GpusOn, ...]
    decider: str
    why: str
    """Why there is no host; empty if there is one."""


class Health(_Document):
    """Whether the agent lives, and whether it decides on a fresh state."""

    alive: bool
    ready: bool
    words: str


class Problem(_Document):
    """An error: what is wrong, and what to do."""

    error: str
    do: str


def read_state(text: bytes) -> ClusterState:
    """A state that was sent.

    Raises:
        InputError: naming the first field that is wrong.
    """
    try:
        return _READS_STATE.validate_json(text)
    except ValidationError as error:
        raise InputError(_refusal(error)) from None


def read_question(text: bytes) -> HostQuestion:
    """A question that was sent.

    Raises:
        InputError: naming the first field that is wrong.
    """
    try:
        return HostQuestion.model_validate_json(text)
    except ValidationError as error:
        raise InputError(_refusal(error)) from None


def _refusal(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


# --- OpenAPI

_MODELS = (StateIn, HostQuestion, DecisionOut, HostAnswer, Health, Problem)


def openapi() -> dict[str, Any]:
    """The description of the addresses that schedulers ask."""
    _, shared = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas = shared["$defs"]
    del schemas["StateIn"]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpuyard serve",
            "version": gpuyard.__version__,
            "description": "A scheduling policy for a cluster whose scheduler asks.",
        },
        "paths": {
            "/v1/decide": {"post": _post("decide", "What to do now", "ClusterState", "DecisionOut")},
            "/v1/select-host": {
                "post": _post(
                    "selectHost", "Where to start one job", "HostQuestion", "HostAnswer", "404", "409"
                )
            },
            "/v1/explain": {"get": _explain()},
            "/v1/health": {
                "get": {"operationId": "health", "summary": "How it does", "responses": _ok("Health")}
            },
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def openapi_text() -> str:
    """The same as it is committed and published."""
    return json.dumps(openapi(), indent=1, sort_keys=True) + "\n"


def _explain() -> dict[str, Any]:
    job = {"name": "job", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1}}
    responses = {
        "200": {"description": "Why it waits", "content": _json({"type": "object"})},
        **_problems("400", "401", "404", "503"),
    }
    return {
        "operationId": "explain",
        "summary": "Why a job waits",
        "parameters": [job],
        "responses": responses,
    }


def _post(name: str, summary: str, given: str, answer: str, *codes: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": _json(_ref(given))},
        "responses": _ok(answer) | _problems("400", "408", "411", "413", "415", "422", "503", *codes),
    }


def _ok(answer: str) -> dict[str, Any]:
    return {"200": {"description": "Done", "content": _json(_ref(answer))}, **_problems("401")}


def _problems(*codes: str) -> dict[str, Any]:
    return {code: {"description": _SAID[code], "content": _json(_ref("Problem"))} for code in codes}


_SAID = {
    "400": "The request cannot be read",
    "401": "The token is missing or wrong",
    "404": "There is no such job",
    "408": "The request took too long to arrive",
    "409": "No state is known yet",
    "411": "The body's length is not known",
    "413": "The body is too long",
    "415": "The body is not JSON",
    "422": "The body is not what was expected",
    "503": "Nothing can be decided now; do what the scheduler would do by itself",
}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
