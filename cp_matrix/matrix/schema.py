"""The shape of a matrix file.

The pydantic models say what may be written; `cp_matrix.matrix.resolve` says what it means.
"""

import math
import re
from typing import Annotated, Any, Literal, Union, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cp_matrix.errors import Problem
from cp_matrix.matrix.case import Scalar, Value
from cp_matrix.matrix.environment import is_taken
from cp_matrix.matrix.near import nearest
from cp_matrix.matrix.source import KeyPath, Source

MAX_TEXT = 200


def _wrong(message: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError("matrix", "{message}", {"message": message, "hint": hint})


def _described(value: Any) -> str:
    kinds = {type(None): "nothing", bool: "true or false", int: "a number", float: "a number", str: "text"}
    kinds |= {list: "a list", dict: "a mapping"}
    return kinds.get(type(value), type(value).__name__)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, (list, dict)):
        raise _wrong(f"must be one value, not {_described(value)}")
    if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_TEXT):
        raise _wrong(f"must be printable text of at most {MAX_TEXT} characters on one line")
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong("must be a finite number")
    return cast(Scalar, value)


def _value(value: Any) -> Value:
    return tuple(map(_scalar, value)) if isinstance(value, list) else _scalar(value)


def _matching(pattern: str, what: str) -> BeforeValidator:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong(f"must be {what}, not {_described(value)}")
        if not re.fullmatch(pattern, value):
            raise _wrong(f"{value!r} is not {what}")
        return value

    return BeforeValidator(check)


def _one_of(kinds: tuple[type, ...], what: str, hint: str = "") -> BeforeValidator:
    def check(value: Any) -> Any:
        if type(value) not in kinds:
            raise _wrong(f"must be {what}, not {_described(value)}", hint)
        return value

    return BeforeValidator(check)


def _variable_name(name: str) -> str:
    if is_taken(name):
        raise _wrong(f"{name} is set for each rank by what starts it", "leave it out: no matrix may set it")
    return name


def _environment_value(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, str) or "\0" in value:
        raise _wrong(f"must be text, not {_described(value)}", "write it in quotes")
    return value


def _axis_values(value: Any) -> Union[tuple[Scalar, ...], Literal["all"]]:
    if value == "all" and isinstance(value, str):
        return "all"
    if not isinstance(value, list):
        raise _wrong(
            f"must be a list of values, not {_described(value)}", "or: all, for an axis of table rows"
        )
    if not value:
        raise _wrong("has no values", "an axis needs at least one")
    return tuple(value)


Name = Annotated[str, _matching(r"[A-Za-z][A-Za-z0-9_]*", "a name (letters, digits and _)")]
TestName = Annotated[str, _matching(r"[A-Za-z][A-Za-z0-9_.]*", "a name (letters, digits, _ and .)")]
RowName = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", "a row name (letters, digits, _.+-)")]
RuleId = Annotated[str, _matching(r"[A-Za-z][A-Za-z0-9_-]*", "a rule id (letters, digits, _ and -)")]
SuiteName = Annotated[str, _matching(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "an importable module:function")]
FunctionName = Annotated[str, _matching(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "an importable module:function")]
Text = Annotated[str, _one_of((str,), "text", "write it in quotes")]
Condition = Annotated[str, _one_of((str,), "an expression")]
NumberOrExpression = Annotated[Any, _one_of((int, float, str), "a number or an expression")]
AxisValues = Annotated[Any, BeforeValidator(_axis_values)]
EnvironmentName = Annotated[
    str, AfterValidator(_variable_name), _matching(r"[A-Za-z_][A-Za-z0-9_]*", "a variable's name")
]
EnvironmentValue = Annotated[str, BeforeValidator(_environment_value)]
TableValue = Annotated[Any, BeforeValidator(_value)]
Argument = Annotated[Any, BeforeValidator(_scalar)]
Environment = dict[EnvironmentName, EnvironmentValue]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)


class SkipRule(_Model):
    """``{id, if, reason}``: skip what the condition holds for.

    ``kept`` says why a rule stays that can never matter.
    """

    id: RuleId | None = None
    condition: Condition = Field(alias="if")
    reason: Text
    kept: Text = ""


class QueryModel(_Model):
    """``{ask, pass, arguments, when}``: a call that answers ``available("NAME")``."""

    ask: FunctionName
    when: Condition | None = None
    names: list[Name] = Field(default=[], alias="pass")
    arguments: dict[Name, Argument] = {}


class VariantModel(_Model):
    """``{environment, facts}``: another way to run every case."""

    description: Text = ""
    environment: Environment = {}
    facts: dict[Name, TableValue] = {}


class Subset(_Model):
    """``{if}`` or just the condition: the cases that are left out, or that are essential as well."""

    condition: Condition = Field(alias="if")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"if": value} if isinstance(value, str) else value


class AxisModel(_Model):
    """A list of values, or ``{full, essential, table}``."""

    full: AxisValues = None
    essential: AxisValues = None
    table: Name | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, list) or value == "all":
            return {"full": value}
        if not isinstance(value, dict):
            raise _wrong(
                f"must be a list of values, not {_described(value)}", "or a mapping with full and essential"
            )
        return value


class Shared(_Model):
    """What a test may say, and ``defaults`` may say for all tests."""

    suite: SuiteName | None = None
    constants: dict[Name, TableValue] = Field(default={}, alias="with")
    world_size: NumberOrExpression = None
    timeout: NumberOrExpression = None
    environment: Environment = {}
    exclude: list[Subset] = []
    queries: list[QueryModel] = []
    skip: list[SkipRule] = []


class TestModel(Shared):
    """One test."""

    __test__ = False

    description: Text = ""
    axes: dict[Name, AxisModel] = Field(min_length=1)
    essential: list[Subset] = []


class Matrix(_Model):
    """A whole matrix file."""

    name: TestName | None = None
    description: Text = ""
    made_for: dict[Name, Text] = {}
    default: bool = Field(default=True, strict=True)
    suite: SuiteName | None = None
    variants: dict[Name, VariantModel] = {}
    tables: dict[Name, dict[RowName, dict[Name, TableValue]]] = {}
    defaults: Shared = Shared()
    tests: dict[TestName, TestModel] = Field(min_length=1)


def read_model(source: Source) -> tuple[Matrix | None, list[Problem]]:
    """The model of a file, or None where its shape leaves nothing to work with; and what is wrong with it.

    Tests of a wrong shape are left out of the model, so that the others are checked further in one go.
    """
    if source.value is None:
        return None, [Problem(source.where(()), "is empty", "a matrix needs tests")]
    if not isinstance(source.value, dict):
        message = f"must be a mapping with tests, not {_described(source.value)}"
        return None, [Problem(source.where(()), message)]
    try:
        return Matrix.model_validate(source.value), []
    except ValidationError as error:
        details: list[dict[str, Any]] = [dict(detail) for detail in error.errors(include_url=False)]
    problems = [_problem(source, detail) for detail in details]
    broken = {detail["loc"][1] for detail in details if detail["loc"][0] == "tests" and detail["loc"][1:]}
    tests = source.value.get("tests")
    named = tests if isinstance(tests, dict) else {}
    sound = {name: test for name, test in named.items() if name not in broken}
    try:
        return Matrix.model_validate({**source.value, "tests": sound}), problems
    except ValidationError:
        return None, problems


def _problem(source: Source, detail: dict[str, Any]) -> Problem:
    path: KeyPath = tuple(step for step in detail["loc"] if step != "[key]")
    last = path[-1] if path else ""
    kind, context = detail["type"], detail.get("ctx") or {}
    if kind == "extra_forbidden":
        allowed = _keys_at(path)
        hint = nearest(last, allowed, f"known here: {', '.join(allowed)}")
        return Problem(source.where(path, key=True), f"unknown key {last!r}", hint)
    if kind == "missing":
        return Problem(source.where(path[:-1], key=True), f"{last!r} is missing here")
    on_key = "[key]" in detail["loc"]
    where = source.where(path, key=on_key)
    name = f"{last} " if isinstance(last, str) and not on_key else ""
    if kind == "matrix":
        return Problem(where, f"{name}{context['message']}", context.get("hint", ""))
    plain = {
        "dict_type": f"must be a mapping, not {_described(detail['input'])}",
        "model_type": f"must be a mapping, not {_described(detail['input'])}",
        "list_type": f"must be a list, not {_described(detail['input'])}",
        "bool_type": "must be true or false",
        "too_short": "is empty",
    }
    return Problem(where, f"{name}{plain.get(kind, detail['msg'])}")


def _keys_at(path: KeyPath) -> list[str]:
    """The keys allowed beside the one at ``path``."""
    model: type[_Model] = Matrix
    match path:
        case ("defaults", _):
            model = Shared
        case ("tests", _, _):
            model = TestModel
        case ("tests", _, "axes", _, _):
            model = AxisModel
        case (*_, "skip", int(), _):
            model = SkipRule
        case (*_, "queries", int(), _):
            model = QueryModel
        case ("variants", _, _):
            model = VariantModel
        case (*_, "exclude" | "essential", int(), _):
            model = Subset
    return [info.alias or name for name, info in model.model_fields.items()]
