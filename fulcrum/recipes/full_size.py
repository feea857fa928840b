"""The recipes of published sizes, and the machine that each is sized for. Nothing here trains on a CPU."""

MACHINES = {
    "prx_256": "8xH100",
    "prx_256_flux2": "8xH100",
    "prx_256_repa_e": "8xH100",
    "prx_pixels_1024": "8xH100",
    "prx_7b": "64xH100",
    "speedrun_24h": "32xH200",  # as published
}
