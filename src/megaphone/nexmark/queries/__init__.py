"""NEXMark's queries, migrateable: each file has the question, the SQL, where we depart and why, the code.

    query         what all have in common: inputs, output, how to build it, the right answer
    q0, q1, q2    without state: pass-through, currency conversion, selection
    q3            people and auctions joined, for ever
    q4, q6        averages over closed auctions, which closing makes for both; auctions has the open ones
    q5            the auction with the most bids, in a sliding window
    q7            the highest bid of each window
    q8            new people who sell, in tumbling windows
    bulk, shelves what folds do with many bins at once, and how they keep rows by key

Paper: the evaluation, NEXMark.
"""

from megaphone.nexmark.queries import q0, q1, q2, q3, q4, q5, q6, q7, q8
from megaphone.nexmark.queries.query import Query, Windows

__all__ = ["QUERIES", "Query", "Windows"]

QUERIES = {module.QUERY.name: module.QUERY for module in (q0, q1, q2, q3, q4, q5, q6, q7, q8)}
"""By name, "q0" to "q8"."""
