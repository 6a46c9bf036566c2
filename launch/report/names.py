"""What algorithms are called in figures and tables, and in which order, from their cards."""

from motley_tff import algorithms
from motley_tff.algorithms.card import Card

# Clusters that were never trained together.
ENSEMBLE = "ensemble"


def _parts(algorithm: str) -> tuple[Card | None, Card | None]:
    """Returns the cards of what was trained and of what personalized it, of a table's name."""
    trained, _, personalization = algorithm.rpartition("+")
    if not trained and personalization in algorithms.TRAINING:
        trained, personalization = personalization, ""
    if personalization == ENSEMBLE:
        trained, personalization = "hypcluster", ""
    return algorithms.CARDS.get(trained), algorithms.CARDS.get(personalization)


def title(algorithm: str) -> str:
    """Returns the name in figures of what the tables' `algorithm` column says."""
    base, on_top = _parts(algorithm)
    if algorithm == ENSEMBLE:
        return "Ensemble"
    if base and on_top:
        name = on_top.on_fedavg if base.name == "fedavg" else ""
        return name or f"{base.title} + {on_top.title}"
    if on_top:
        return f"{on_top.title} of a given model"
    return base.title if base else algorithm


def paper_row(algorithm: str) -> str:
    """Returns the name of its rows in Motley's Tables 4 and 5; else its title."""
    base, on_top = _parts(algorithm)
    card = on_top if base and base.name == "fedavg" else base if not on_top else None
    return (card.paper_row if card else "") or title(algorithm)


def rank(algorithm: str) -> tuple[int, int, bool, str]:
    """Returns what sorts algorithms as the registry has them; unknown ones follow by name."""
    order = [*algorithms.CARDS, ""]
    base, on_top = _parts(algorithm)
    places = [order.index(card.name if card else "") for card in (on_top or base, base)]
    return places[0], places[1] if base else -1, algorithm == ENSEMBLE, algorithm


def is_fine_tuned(algorithm: str) -> bool:
    """Returns whether the epochs of fine-tuning are its candidates."""
    _, on_top = _parts(algorithm)
    kind = algorithms.PERSONALIZATIONS[on_top.name] if on_top else object
    return issubclass(kind, algorithms.FineTuning)


def has_fedavg_baseline(algorithm: str) -> bool:
    """Returns whether its baseline is the model that FedAvg trained."""
    base, _ = _parts(algorithm)
    return bool(base and (base.trains_fedavg or base.name == "fedavg"))
