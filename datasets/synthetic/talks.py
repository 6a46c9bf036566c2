"""Synthetic talks in two languages: what English and Spanish clients differ in, planted.

Each language has its own words (syllables of its own kind), its own word order (English: adjective
before noun, subject before verb; Spanish: adjective after noun, object pronoun before verb) and its
own frequent small words. Names and numbers are shared. Inside a language a talk has its topic: a
few nouns, verbs, adjectives and a name that come back in both of its halves, so that a model gains
by learning from the first.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datasets.synthetic import posts as synthetic_posts
from motley_tff.core import random_streams

# As many words as Motley's vocabulary has, so that the model has its weights.
NUM_WORDS = 15_814
LANGUAGES = ("en", "es")
_ENGLISH_SHARE = 0.65
# Chosen by time: ten rounds and an evaluation of every valid and test client, twenty epochs of
# fine-tuning each, take about a minute on two cores.
_NUM_CLIENTS = 90
_MIN_SENTENCES, _MAX_SENTENCES = 8, 20
_NUM_NUMBERS, _NUM_NAMES = 100, 714
# How often a content word is one of the talk's topic.
_TOPIC_SHARE = 0.7
_SMALL_WORDS = {
    language: {kind: words.split() for kind, words in kinds.items()}
    for language, kinds in synthetic_posts.WORDS["small_words"].items()
}
# Topic and share of the language's words, by kind.
_CONTENT = {"noun": (10, 0.5), "verb": (6, 0.3), "adjective": (5, 0.2)}

# kind of word -> a word
Draw = Callable[[str], str]


class Talks(NamedTuple):
    """What was said by clients, whose ids begin with the language."""

    sentences: dict[str, list[str]]  # Words separated by one space.
    vocabulary: tuple[str, ...]  # Every word there is, `NUM_WORDS` of them, all different.
    groups: dict[str, str]  # {client id: language}.


def speak(seed: int, num_clients: int = _NUM_CLIENTS) -> Talks:
    """Returns talks, 65% of them in English."""
    lexicon = _lexicon(random_streams.generator(seed, "synthetic_data", 0))
    num_english = round(_ENGLISH_SHARE * num_clients)
    sentences, groups = {}, {}
    for i in range(num_clients):
        language = LANGUAGES[i >= num_english]
        client_id = f"{language}-talk_{i:03d}"
        rng = random_streams.generator(seed, "synthetic_data", 1, i)
        sentences[client_id] = _talk(rng, language, lexicon)
        groups[client_id] = language
    words = [w for kinds in lexicon.values() for words in kinds.values() for w in words]
    return Talks(sentences, tuple(dict.fromkeys(words)), groups)


def _lexicon(rng: np.random.Generator) -> dict[str, dict[str, list[str]]]:
    """Returns `{language or "shared": {kind: words, most frequent first}}`."""
    taken = {w for kinds in _SMALL_WORDS.values() for words in kinds.values() for w in words}
    num_content = NUM_WORDS - _NUM_NUMBERS - _NUM_NAMES - len(taken)
    shared = {
        "number": [str(n) for n in range(1, _NUM_NUMBERS + 1)],
        "name": _invent(rng, "names", _NUM_NAMES, taken),
    }
    result = {"shared": shared}
    halves = num_content - num_content // 2, num_content // 2
    for language, count in zip(LANGUAGES, halves, strict=True):
        words = _invent(rng, language, count, taken)
        ends = np.rint(np.cumsum([share for _, share in _CONTENT.values()]) * count).astype(int)
        kinds = {
            kind: words[start:end]
            for kind, start, end in zip(_CONTENT, (0, *ends[:-1]), ends, strict=True)
        }
        result[language] = {**_SMALL_WORDS[language], **kinds}
    return result


def _invent(rng: np.random.Generator, kind: str, count: int, taken: set[str]) -> list[str]:
    """Returns new words of up to three syllables and adds them to those taken."""
    beginnings, vowels, ends = (text.split() for text in synthetic_posts.WORDS["syllables"][kind])

    def pick(parts: list[str]) -> str:
        return parts[rng.integers(len(parts))]

    words: list[str] = []
    while len(words) < count:
        length = 1 + rng.binomial(2, 0.5)
        syllables = [pick(beginnings) + pick(vowels) for _ in range(length)]
        word = "".join([*syllables, pick(ends)])
        if word not in taken:
            taken.add(word)
            words.append(word)
    return words


def _talk(
    rng: np.random.Generator, language: str, lexicon: dict[str, dict[str, list[str]]]
) -> list[str]:
    words = {**lexicon["shared"], **lexicon[language]}
    topic = {kind: _frequent(rng, words[kind], size) for kind, (size, _) in _CONTENT.items()}
    topic["name"] = _frequent(rng, words["name"], 1)

    def draw(kind: str) -> str:
        is_of_topic = kind in topic and rng.random() < _TOPIC_SHARE
        return _frequent(rng, (topic if is_of_topic else words)[kind], 1)[0]

    sentence = {"en": _english, "es": _spanish}[language]
    length = rng.integers(_MIN_SENTENCES, _MAX_SENTENCES + 1)
    return [" ".join(sentence(draw, rng)) for _ in range(length)]


def _frequent(rng: np.random.Generator, words: list[str], size: int) -> list[str]:
    """Draws words with shares that fall as 1 / rank (Zipf's law)."""
    return [words[i] for i in np.searchsorted(_zipf(len(words)), rng.random(size))]


@functools.lru_cache(maxsize=64)
def _zipf(count: int) -> np.ndarray:
    shares = np.cumsum(1 / np.arange(1, count + 1))
    return shares / shares[-1]


def _thing(draw: Draw, rng: np.random.Generator, adjective_first: bool) -> list[str]:
    adjective = [draw("adjective")] if rng.random() < 0.4 else []
    determiner, noun = draw("determiner"), draw("noun")
    return [determiner, *adjective, noun] if adjective_first else [determiner, noun, *adjective]


def _english(draw: Draw, rng: np.random.Generator) -> list[str]:
    """Subject, verb, object; the adjective before its noun."""

    def clause() -> list[str]:
        subject = [draw(str(rng.choice(["pronoun", "name"], p=(0.8, 0.2))))]
        is_thing = rng.random() < 0.85
        thing = _thing(draw, rng, True) if is_thing else [draw("number"), draw("noun")]
        return [*subject, draw("verb"), *thing]

    sentence = clause()
    if rng.random() < 0.6:
        sentence += [draw("preposition"), *_thing(draw, rng, True)]
    return sentence + ([draw("conjunction"), *clause()] if rng.random() < 0.4 else [])


def _spanish(draw: Draw, rng: np.random.Generator) -> list[str]:
    """No subject or one after the verb, the object's pronoun before it; adjectives after nouns."""

    def clause() -> list[str]:
        subject = [draw("name")] if rng.random() < 0.2 else _thing(draw, rng, False)
        count = [draw("number")] if rng.random() < 0.15 else []
        return [draw("pronoun"), draw("verb"), *count, *subject]

    is_placed = rng.random() < 0.6
    sentence = [draw("preposition"), *_thing(draw, rng, False)] if is_placed else []
    sentence += clause()
    return sentence + ([draw("conjunction"), *clause()] if rng.random() < 0.4 else [])
