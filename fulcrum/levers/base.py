"""What a lever is: settings, a pure edit of a run, and a card with its claims, cost and witness."""

from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from fulcrum.judge.claims import ANY as ANY
from fulcrum.judge.claims import Claim as Claim
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Staged
from fulcrum.spec.record import Filler, Record, typed
from fulcrum.spec.run import RunSpec

GUIDE = "see docs/write-a-lever.md"
Built = Any  # what a witness looks at: train.build.Built, which would bring torch


class Cost(Record):
    """Cost of a training step relative to the same run without the lever."""

    flops: float = 1.0
    memory: float = 1.0
    parameters: float = 1.0


class Card(Record):
    """The facts that travel with a lever."""

    says: str  # one line: what changes and when it pays
    claims: tuple[Claim, ...] = ()
    train_only: bool = False  # nothing of it is left in the exported model
    warns: str = ""


class Lever(Record):
    """A training decision. Subclasses hold its settings as fields."""

    name: ClassVar[str]
    touches: ClassVar[tuple[str, ...]]  # paths that the edit may change
    affects: ClassVar[tuple[str, ...]] = ("weights", "samples")
    card: ClassVar[Card]

    def edit(self, run: RunSpec) -> RunSpec:
        raise BadInput(f"{type(self).__name__} defines no `edit`", GUIDE)

    def needs(self, run: RunSpec) -> str | None:
        """What is missing in the edited run, in words, or None."""
        return None

    def idle(self, run: RunSpec) -> str:
        """Why nothing can be expected of it in this edited run, though it may be added, in words;
        empty: something can. Advice leaves it out then, and a study may still try it."""
        return ""

    def cost(self, run: RunSpec) -> Cost:
        return Cost()

    def in_run(self, run: RunSpec) -> str:
        """What it comes to in this edited run, in words, where no card can know it; told with the
        card and in the plan."""
        return ""

    def witness(self, built: Built) -> bool:
        """Is the lever really on in this built run?"""
        raise BadInput(f"{type(self).__name__} defines no `witness`", GUIDE)

    def __str__(self) -> str:
        """As a phrase writes it: the name, and the settings that are not the default."""
        fields = type(self).model_fields.items()
        set_here = [
            f"{name}={typed(getattr(self, name))}"
            for name, field in fields
            if getattr(self, name) != field.default
        ]
        return f"{self.name}({', '.join(set_here)})" if set_here else self.name


class Swap(Lever):
    """A lever that puts another filler into a seam: the filler's settings are its own, declared
    there and nowhere else.

    A field that a subclass declares itself is its own too: another range or default, or one more
    setting.
    """

    slot: ClassVar[str]
    filler: ClassVar[type[Filler]]
    #: of the filler, those that it offers; if not said: all but a term's name
    settings: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, **given: Any) -> None:
        """Before pydantic reads the class: annotations and defaults of the offered settings, and
        what it touches."""
        super().__init_subclass__(**given)
        if "slot" in vars(cls) and "touches" not in vars(cls):
            cls.touches = (cls.slot,)
        if "filler" in vars(cls):
            fields, own = cls.filler.model_fields, cls.__annotations__
            if not hasattr(cls, "settings"):
                cls.settings = tuple(name for name in fields if name != "name")
            # a base may have declared some
            new = [name for name in cls.settings if name not in cls.model_fields]
            hints = get_type_hints(cls.filler, include_extras=True) | own
            cls.__annotations__ = {name: hints[name] for name in new} | own
            for name in new:
                if name not in own:
                    setattr(cls, name, fields[name].default)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # a setting of the filler

    def made(self, **others: Any) -> Any:
        """The filler, with these settings and what else it is given."""
        return self.filler(**others, **{name: getattr(self, name) for name in self.settings})

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, self.slot, self.made())


class Bundle(Record):
    """Several levers under one name. A phrase that names it holds its parts: an arm with it is a
    compound, and says so."""

    name: ClassVar[str]
    card: ClassVar[Card]

    def parts(self) -> tuple[Lever | Staged, ...]:
        raise TypeError(f"{type(self).__name__} names no parts")

    def needs(self, run: RunSpec) -> str | None:
        """What the run with all parts lacks for what the bundle is about, in words, or None."""
        return None
