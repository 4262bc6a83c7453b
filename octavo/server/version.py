"""/version."""

from fastapi import APIRouter

from octavo import __version__

router = APIRouter()


@router.get("/version")
async def version() -> dict[str, str]:
    """The version of octavo."""
    return {"version": __version__}
