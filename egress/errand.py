"""A plain HTTP request as it goes out: with what a look into it changed, and what its answer is held to."""

from __future__ import annotations

from typing import NamedTuple

from egress.refusals import Reason, Refused
from egress.requestdesk import Ruling
from egress.uploads import Meter, Uploads
from egress.wire.body import Body, Mask, response_body
from egress.wire.http1 import Field, Fields, Request, Response, values
from egress.wire.masking import Masker

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS"})
_UNCODED = ("", "identity")


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
        """The head of its answer without what must not be seen; Refused where that could hide in the body."""
        if not self.masks:
            return response
        if any(value.lower() not in _UNCODED for value in values(response.fields, "content-encoding")):
            raise Refused(Reason.BAD_RESPONSE, "it is compressed, which it was asked not to be")
        masker = Masker(self.masks)

        def covered(text: str) -> str:
            return masker.whole(text.encode("latin-1")).decode("latin-1")

        fields = Fields(Field(name, covered(value)) for name, value in response.fields)
        return response._replace(fields=fields, phrase=covered(response.phrase))

    def _mask(self) -> Mask | None:
        return Masker(self.masks) if self.masks else None


def prepare(errand: Errand, ruling: Ruling, uploads: Uploads) -> Errand:
    """The request as it may go: credentials put in, its answer asked for in the clear, its upload counted."""
    put, masks = ruling.exchange
    meter = None if ruling.budget is None else Meter(ruling.budget, uploads.counts)
    if not put and not masks:  # a value may be put in that is too short to mask
        return errand._replace(meter=meter)
    changed = dict(put) | {"accept-encoding": "identity"}
    fields = [field for field in errand.request.fields if field.name not in changed]
    fields += [Field(name, value) for name, value in changed.items()]
    return errand._replace(request=errand.request._replace(fields=Fields(fields)), meter=meter, masks=masks)
