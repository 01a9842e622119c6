"""The KServe v2 codec of one version of one model: JSON and the binary tensor extension, compression, classification.

Bodies go through it once, next to the model: what is wrong with a request is found here, in Triton's words, and the model
never sees it. Standard library and numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.config.spec import ModelConfig
from functions.protocol.calls import DecodedCall, Encoded
from functions.protocol.frames import NO_HEADER
from functions.protocol.rules import Rules
from functions.protocol.v2_request import Decoder
from functions.protocol.v2_response import Encoder
from functions.protocol.values import Response


class Codec:
    """Made once a version; used by one thread at a time.

    ``labels``: see ``classification.read_labels``. ``limit_bytes`` bounds a body after decompression.
    """

    def __init__(
        self, config: ModelConfig, version: int, labels: Mapping[str, Sequence[str]] | None = None, limit_bytes: int = 1 << 30
    ) -> None:
        self.rules = Rules(config)
        self._decoder = Decoder(config, self.rules, limit_bytes)
        self._encoder = Encoder(config, version, labels or {})

    def decode(self, body: memoryview, header_length: int = NO_HEADER, flags: int = 0) -> DecodedCall:
        """A CALL's body → the request as the configuration's ``full_shape`` has it (``reshape`` not applied), checked, and how
        its answer is wanted.

        ``header_length`` is KServe's Inference-Header-Content-Length: NO_HEADER = all of it is JSON, 0 = a raw binary request.
        ``flags`` are the frame's: how the body is compressed, what the caller accepts. Deadline, hops and ``cancelled`` are for
        the one who received the frame to fill in. Raises InvalidRequest, TooLarge and Unsupported, nothing else.
        """
        return self._decoder.decode(body, header_length, flags)

    def encode(self, call: DecodedCall, response: Response) -> Encoded:
        """The answer to a call: outputs in the response's order, those not asked for left out.

        Raises ``response.error`` when there is one; InvalidRequest where the model's answer has no form that the caller asked
        for (bytes that are not UTF-8 as JSON, classes of strings); ModelFailed for a string that cannot be encoded.
        """
        return self._encoder.encode(call, response)
