"""A plain HTTP request as it goes out: with what a look into it changed, and what its answer is held to."""

from __future__ import annotations

from typing import NamedTuple

from egress.refusals import Reason, Refused
from egress.requestdesk import Ruling
from egress.uploads import Meter, Uploads
from egress.wire.body import Body, Mask, response_body
from egress.wire.http1 import Field, Fields, Request, Response, tamed, values
from egress.wire.masking import Masker

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})
_UNCODED = ("", "identity")
_IN_PIECES = frozenset({"range", "if-range"})  # which would come without what must not be seen, one by one


class Errand(NamedTuple):
    """A request on its way, with what of its body came along."""

    request: Request
    path: str
    body: Body
    first: bytes
    meter: Meter | None = None
    masks: tuple[bytes, ...] = ()

    @property
    def may_be_repeated(self) -> bool:
        return not self.request.length and self.request.method in _SAFE_TO_REPEAT

    def counted(self, data: bytes) -> bytes:
        """What is about to be sent of its body; Refused if that is too much."""
        if self.meter is not None:
            self.meter.add(self.body.moved - self.meter.sent)  # what frames it is ours
        return data

    def answer_body(self, response: Response, chunked: bool) -> Body:
        return response_body(response.length, chunked, self._mask())

    def cover(self, response: Response) -> Response:
        """The head of an answer without what must not be seen; Refused where that could hide in the body."""
        if not self.masks:
            return response
        if any(value.lower() not in _UNCODED for value in values(response.fields, "content-encoding")):
            raise Refused(Reason.BAD_RESPONSE, "it is compressed, which it was asked not to be")
        masker = Masker(self.masks)

        def covered(text: str) -> str:
            return masker.whole(text.encode("latin-1")).decode("latin-1")

        fields = Fields(Field(name, covered(value)) for name, value in response.fields if not self._tells(name))
        return response._replace(fields=fields, phrase=covered(response.phrase))

    def _tells(self, name: str) -> bool:
        """Names of fields are in lower case here, whatever they were."""
        return any(mask.decode("latin-1").lower() in name for mask in self.masks)

    def _mask(self) -> Mask | None:
        return Masker(self.masks) if self.masks else None


def prepare(errand: Errand, ruling: Ruling, uploads: Uploads) -> Errand:
    """The request as it may go, if it was looked into: with the fields that were judged, its upload counted."""
    rule = ruling.decision.rule
    if rule is None or not rule.needs_inspection:
        return errand
    meter = None if ruling.budget is None else Meter(ruling.budget, uploads.counts)
    fields = _exchanged(tamed(errand.request.fields), *ruling.exchange)
    return errand._replace(request=errand.request._replace(fields=fields), meter=meter, masks=ruling.exchange.masks)


def _exchanged(fields: Fields, put: tuple[tuple[str, str], ...], masks: tuple[bytes, ...]) -> Fields:
    """With credentials put in, and the answer asked for whole and in the clear."""
    if not put and not masks:  # a value may be put in that is too short to mask
        return fields
    changed = dict(put) | {"accept-encoding": "identity"}
    kept = [field for field in fields if field.name not in changed and field.name not in _IN_PIECES]
    return Fields([*kept, *(Field(name, value) for name, value in changed.items())])
