"""Settings of tables that are larger than memory."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from recmill.settings.sizes import parse_size
from recmill.settings.tree import Settings

StoreName = Literal["device_mem", "cached_host_mem", "cached_ssd"]


def resolve_bytes(given: object) -> object:
    """`8GiB` as a number of bytes."""
    return parse_size("store.cache_memory =", given) if isinstance(given, str) else given


class Store(Settings):
    """Where the rows of embedding tables are: all in memory, or the ones in use in memory and all on a disk.

    device_mem        all in memory, where the kernels are
    cached_host_mem   a cache of `cache_memory` over an array in the memory of the host. Of use on a CPU to try a cache
                      without a disk: it saves no memory
    cached_ssd        a cache of `cache_memory` over files. The result is the same to the last bit
    """

    aliases: ClassVar[Mapping[str, str]] = {"type": "kind", "persistent_path": "dir"}
    choice: ClassVar[str] = "kind"

    kind: StoreName = Field(default="device_mem", description="Where rows are: memory, or a cache over a store.")
    dir: str = Field(
        default="", description="Of cached_ssd: the directory of its files; empty: `store` in the run directory."
    )
    cache_memory: Annotated[int, BeforeValidator(resolve_bytes)] = Field(
        default=1 << 30, ge=1 << 12, description="Bytes of rows kept in memory, as a number or as 8GiB."
    )

    def problems(self) -> Iterator[str]:
        """What would do nothing."""
        if self.dir and self.kind != "cached_ssd":
            yield f"store.dir = {self.dir} does nothing for store.kind = {self.kind}; set store.kind=cached_ssd"
        if self.kind == "device_mem" and self.cache_memory != 1 << 30:
            yield (
                f"store.cache_memory = {self.cache_memory:,} does nothing for store.kind = device_mem, where all rows "
                "are in memory; set store.kind=cached_ssd"
            )

    @property
    def is_tiered(self) -> bool:
        """Whether some rows may be out of memory."""
        return self.kind != "device_mem"
