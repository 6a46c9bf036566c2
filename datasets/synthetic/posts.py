"""Synthetic posts: users who write about their own topics in a shared grammar, dated.

What makes a user: the planted group, which is their main topic; the words of each topic they
prefer; the phrases they end with; how long they write. Over a user's years part of the main topic's
share goes to a neighbouring topic. Nothing here knows of any model or algorithm.
"""

import datetime
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import yaml

from motley_tff.core import random_streams


class Posts(NamedTuple):
    """One user's sentences, lower-case tokens separated by one space, as in TFF's StackOverflow,
    and the date of each, ascending, such as `2014-01-21 20:26:05.383 UTC`; those of one post agree.
    """

    tokens: list[str]
    creation_dates: list[str]


class Topic(NamedTuple):
    """A topic: its share of the users, and its words by their place in the grammar."""

    share: float
    words: dict[str, tuple[str, ...]]


WORDS = yaml.safe_load(pathlib.Path(__file__).with_name("words.yaml").read_text("utf-8"))
TOPICS: Mapping[str, Topic] = {
    name: Topic(words.pop("share"), {kind: tuple(text.split()) for kind, text in words.items()})
    for name, words in WORDS["topics"].items()
}
_GRAMMAR: Mapping[str, Mapping[str, int]] = WORDS["grammar"]
_CLOSINGS: Sequence[str] = WORDS["closings"]
# Shares of the main topic at the first and at the last sentence; the neighbouring topic's grows by
# what it loses, the others have the rest.
_MAIN_SHARE_FIRST, _MAIN_SHARE_LAST, _NEIGHBOUR_SHARE_FIRST = 0.80, 0.65, 0.08
# Dirichlet concentrations: below one, a user has a few favourites.
_WORD_CONCENTRATION, _CLOSING_CONCENTRATION = 0.3, 0.4
_FEWEST_SENTENCES, _MOST_SENTENCES = 12, 30
# Chosen by time: ten rounds and an evaluation of every valid and test user, twenty epochs of
# fine-tuning each, take well under two minutes on two cores.
_NUM_USERS = 48
_FIRST_DAY = datetime.datetime(2012, 1, 1)


class _User:
    """A user's preferences, and the random numbers their sentences are made with."""

    def __init__(self, rng: np.random.Generator, group: str):
        self._rng = rng
        names = tuple(TOPICS)
        # The main topic, the neighbouring one, the others.
        start = names.index(group)
        self._names = names[start:] + names[:start]
        self._closings = rng.dirichlet(np.full(len(_CLOSINGS), _CLOSING_CONCENTRATION))
        self._preferences = {
            (name, kind): rng.dirichlet(np.full(len(words), _WORD_CONCENTRATION))
            for name, topic in TOPICS.items()
            for kind, words in topic.words.items()
        }

    def sentence(self, progress: float) -> str:
        """Returns a sentence written after `progress` (0..1) of the user's time."""
        lost = (_MAIN_SHARE_FIRST - _MAIN_SHARE_LAST) * progress
        shares = [_MAIN_SHARE_FIRST - lost, _NEIGHBOUR_SHARE_FIRST + lost]
        others = len(self._names) - 2
        shares += [(1 - sum(shares)) / others] * others
        return self._expand("SENTENCE", self._names[self._choose(shares)])

    def _choose(self, shares: Sequence[float] | np.ndarray) -> int:
        shares = np.asarray(shares, np.float64)
        return int(self._rng.choice(len(shares), p=shares / shares.sum()))

    def _expand(self, symbol: str, topic: str) -> str:
        if symbol == "CLOSING":
            return _CLOSINGS[self._choose(self._closings)]
        if symbol in _GRAMMAR:
            rules = _GRAMMAR[symbol]
            rule = tuple(rules)[self._choose(tuple(rules.values()))]
            return " ".join(self._expand(part, topic) for part in rule.split())
        if (topic, symbol) not in self._preferences:
            return symbol
        return TOPICS[topic].words[symbol][self._choose(self._preferences[topic, symbol])]


def write(seed: int, num_users: int = _NUM_USERS) -> tuple[dict[str, Posts], dict[str, str]]:
    """Returns (posts by user, planted group by user); users' ids sort in their order."""
    posts, groups = {}, {}
    names = tuple(TOPICS)
    shares = [topic.share for topic in TOPICS.values()]
    for i in range(num_users):
        rng = random_streams.generator(seed, "synthetic_data", i)
        group = names[int(rng.choice(len(names), p=shares))]
        user_id = f"user_{i:04d}"
        posts[user_id], groups[user_id] = _posts(rng, group), group
    return posts, groups


def _posts(rng: np.random.Generator, group: str) -> Posts:
    user = _User(rng, group)
    count = int(rng.integers(_FEWEST_SENTENCES, _MOST_SENTENCES + 1))
    # Two sentences a post on average; posts over one to four years.
    post_of = np.cumsum(rng.random(count) < 0.5)
    years, start = rng.uniform(1, 4), rng.uniform(0, 3)
    times = np.sort(rng.random(post_of[-1] + 1))[post_of]
    tokens = [user.sentence(float(time)) for time in times]
    days = (365 * (start + years * time) for time in times)
    spans = (datetime.timedelta(milliseconds=round(n * 86_400_000)) for n in days)
    return Posts(tokens, [f"{(_FIRST_DAY + s).isoformat(' ', 'milliseconds')} UTC" for s in spans])
