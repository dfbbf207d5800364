"""Query fields of lists about benchmarks, wherever in a row's relations the benchmark stands."""

from django.db.models import Q

from console.query import Field, Term
from evals.refs import benchmark_ref
from registry.errors import InvalidInput


def benchmark_field(path: str) -> Field:
    """benchmark:name or benchmark:name@version; `path` leads from the row to the benchmark."""

    def on(term: Term) -> Q:
        if term.is_presence:
            return Q(**{f"{path}__isnull": False})
        found = Q(**{f"{path}__name__in": term.values})
        for prefix in term.prefixes:
            found |= Q(**{f"{path}__name__startswith": prefix})
        for value in term.values:
            try:
                ref = benchmark_ref(value)
            except InvalidInput:
                continue
            found |= Q(**{f"{path}__name": ref.name, f"{path}__version": ref.version})
        return found

    return Field("benchmark", build=on, help="name, or name@version")


def made_field(imported: str, help: str) -> Field:
    """made:here or made:elsewhere; the column `imported` is empty where a row was made here."""

    def made(term: Term) -> Q:
        found = Q()
        for value in term.values:
            found |= Q(**{f"{imported}__isnull": value == "here"})
        return found

    return Field("made", choices=("here", "elsewhere"), build=made, help=help)
