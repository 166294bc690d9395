"""Write host/text/generated/unicode_tables.c: what the tokenizers package does with each character, and the canonical
forms of Python's unicodedata.

    python3 -m pip install --target DIR tokenizers
    PYTHONPATH=DIR python3 scripts/unicode/tables.py > host/text/generated/unicode_tables.c

Each rule of that package brings tables of its own version of Unicode (punctuation of 8, letters of 16), so every
character is shown to every rule. Made with tokenizers 0.23.3 and Unicode 14.
"""
import struct
import unicodedata

from tokenizers import normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def removed(normalizer):
    return {c for c in ALL if normalizer.normalize_str("a" + chr(c)) == "a"}


def bert(**more):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **more})


def joined(lead, pre_tokenizer, trail=""):
    return {c for c in ALL if len(pre_tokenizer.pre_tokenize_str(lead + chr(c) + trail)) == 1}


def flags():
    """The bits of host/text/unicode.h, lowest first."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters, numbers, others = (joined(lead, split) for lead in "a1.")
    alone = pre_tokenizers.BertPreTokenizer()
    punctuation = {c for c in ALL if len(alone.pre_tokenize_str("a" + chr(c) + "a")) == 3}
    return [set(ALL) - letters - numbers - others, removed(bert(clean_text=True)), punctuation, letters, numbers,
            joined("a", pre_tokenizers.Whitespace(), "a"), removed(bert(strip_accents=True)),
            removed(normalizers.StripAccents())]


def runs(value):
    """Rows of length and value from character 0 on."""
    out = []
    for c in range(0x110000):
        v = value(c)
        if out and out[-1][1] == v:
            out[-1][0] += 1
        else:
            out.append([1, v])
    return out


def lower():
    """Rows of first, count, step and difference; the one letter that becomes two is in unicode.c."""
    lowercase = normalizers.Lowercase()
    out = []
    for c in ALL:
        text = lowercase.normalize_str(chr(c))
        if len(text) != 1 or ord(text) == c:
            continue
        difference = ord(text) - c
        last = out[-1] if out else None
        if last and last[3] == difference and (last[1] == 1 and c - last[0] <= 2 or
                                               last[0] + last[1] * last[2] == c):
            last[2] = c - last[0] if last[1] == 1 else last[2]
            last[1] += 1
        else:
            out.append([c, 1, 1, difference])
    return out


def canonical(normal):
    """Rows of character, first part, and twice the second part (0: none), plus 1 where the parts are joined again; one
    step each."""
    out = []
    for c in ALL:
        parts = unicodedata.decomposition(chr(c))
        if not parts or parts.startswith("<") or normal.normalize_str(chr(c)) == chr(c):
            continue
        parts = [int(part, 16) for part in parts.split()] + [0]
        whole = unicodedata.normalize("NFC", unicodedata.normalize("NFD", chr(c)))
        out.append([c, parts[0], 2 * parts[1] + int(whole == chr(c))])
    return out


def compatible(normal):
    """Characters that compatibility takes apart in another way: rows of the first of a run, characters of the run,
    parts of each, and the place of their parts; and the parts."""
    compat, out, parts = normalizers.NFKD(), [], []
    for c in ALL:
        text = compat.normalize_str(chr(c))
        if text == normal.normalize_str(chr(c)):
            continue
        if out and out[-1][0] + out[-1][1] == c and out[-1][2] == len(text):
            out[-1][1] += 1
        else:
            out.append([c, 1, len(text), len(parts)])
        parts += [[ord(part)] for part in text]
    return out, parts


def classes(normal):
    """The combining class, 0 where the package does not know the character."""
    def known(c):
        mark = unicodedata.combining(chr(c)) if not 0xD800 <= c < 0xE000 else 0
        if mark > 1 and normal.normalize_str("a" + chr(c) + "\u0334") == "a" + chr(c) + "\u0334":
            return 0
        return mark
    return runs(known)


def dropping(first):
    """A table of SentencePiece that replaces all texts that begin with one of these bytes by nothing: a trie of units
    that are an offset in bits 10 and up, a leaf in bit 8 and a byte, then the values, then the texts."""
    units = [256 << 10] + 2047 * [0]
    for byte in first:
        units[256 ^ byte] = (256 ^ 1024) << 10 | 1 << 8 | byte
    return normalizers.Precompiled(struct.pack("<I2048I", 4 * len(units), *units) + b"\0")


def joins():
    """Ranges of characters that extend a grapheme (1), break it at both sides (2), or join the next one (3): rows of
    first, last and kind. A grapheme is replaced as a whole if it has less than 6 bytes."""
    letter, others = dropping(b"a"), dropping(set(range(1, 0xF5)) - {0x61, 0xCC})
    out = []
    for c in ALL:
        kind = 1 if letter.normalize_str("a" + chr(c)) == "" else 3 if others.normalize_str(chr(c) + "a") == "" else 0
        if kind == 0 and c < 0x10000 and others.normalize_str(chr(c) + "\u0301") != "":
            kind = 2
        if c == 0x61:
            kind = 0
        if kind and out and out[-1][1:] == [c - 1, kind]:
            out[-1][1] = c
        elif kind:
            out.append([c, c, kind])
    return out


def text(rows):
    """The rows as host/text/unicode_tables.h describes: differences in digits of 5 bits."""
    out, above = "", [0] * len(rows[0])
    for row in rows:
        for difference in (number - last for number, last in zip(row, above)):
            rest = 2 * difference if difference >= 0 else -2 * difference - 1
            while rest >= 32:
                out += "?" if rest % 32 == 31 else chr(96 + rest % 32)
                rest //= 32
            out += chr(64 + rest)
        above = row
    return out


def table(name, rows):
    print(f"    [AH_TABLE_{name}] = {{.columns = {len(rows[0])}, .text =")
    line = ""
    for character in text(rows).replace("\\", "\\\\"):
        if len(line) >= 111 and not line.endswith("\\"):
            print(f'     "{line}"')
            line = ""
        line += character
    print(f'     "{line}"}},')


def main():
    bits = flags()
    normal = normalizers.NFD()
    compatibles, parts = compatible(normal)
    tables = {"FLAGS": runs(lambda c: sum((c in s) << i for i, s in enumerate(bits))), "LOWER": lower(),
              "CANONICAL": canonical(normal), "CLASSES": classes(normal), "COMPATIBLE": compatibles, "PARTS": parts,
              "JOINS": joins()}
    print("/* Written by scripts/unicode/tables.py. */")
    print('#include "text/unicode_tables.h"')
    print(f"\nuint32_t ah_unicode_numbers[{sum(len(rows) * len(rows[0]) for rows in tables.values())}];")
    print("\nstruct ah_unicode_table ah_unicode_tables[AH_TABLE_COUNT] = {")
    for name, rows in tables.items():
        table(name, rows)
    print("};")


main()
