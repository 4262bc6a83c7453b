"""Scripts: what the scripted model says, token by token, by the last character of the prompt."""

SCRIPTS: dict[str, list[bytes | str]] = {
    "p": ["plain", " wor", "ds,", " no more"],
    "o": [" tick", " tock", " tack"],
    # an emoji and a rare sign in single bytes; a joined emoji in torn tokens
    "e": ["a ", b"\xf0", b"\x9f", b"\x98", b"\x80", " b ", b"\xf0", b"\xa0", b"\x9c", b"\x8e", " c"],
    "j": [b"\xf0\x9f\x91", b"\xa9\xe2\x80", b"\x8d\xf0\x9f\x92\xbb"],
    # a character begins, a whole word follows, and then a byte that continues nothing
    "v": ["x", b"\xe2", "word", b"\x80", " y"],
    # a stop string after what stays, and one that begins and ends within tokens
    "d": ["ABCD", "EFG", "HIJ"],
    "s": ["one tw", "o thr", "ee fo", "ur five"],
    # what a stop string could begin with, and never becomes
    "u": ["UNO", " DUE", " T", "RE"],
    # markers that are one token each
    "m": ["in a", "<think>", "b", ",", "d", "</think>", "out"],
}
LOOPS = "o"  # these begin again instead of ending
