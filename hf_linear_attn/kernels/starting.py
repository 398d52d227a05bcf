"""Does Triton start on this machine?"""

from functools import cache


@cache
def why_triton_does_not_start() -> str | None:
    """Why no kernel can be launched on the GPU, or None; asked once a process.

    Triton builds its launcher when the first kernel runs, with a C compiler and Python's headers,
    which a small container may lack. A choice that is open must not fail there.
    """
    try:
        from triton.runtime import driver

        driver.active.get_current_target()
    except Exception as error:
        return f"Triton does not start on this machine ({type(error).__name__}: {error})"
    return None
