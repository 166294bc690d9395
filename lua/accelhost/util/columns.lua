--- The number of columns of a terminal that a text occupies.
--
-- A character of UTF-8 counts by its block: East Asian wide and emoji two, marks that combine with the character before
-- them none, all others one. (Unicode Standard Annex 11, by whole blocks.)
local columns = {}

-- First and last code point of blocks of two columns, and of those of none; sorted.
local WIDE = {
  {0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x2614, 0x2615}, {0x26a1, 0x26a1}, {0x2705, 0x2705},
  {0x274c, 0x274c}, {0x2753, 0x2755}, {0x2795, 0x2797}, {0x2b50, 0x2b50}, {0x2e80, 0x303e}, {0x3041, 0x33ff},
  {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa4cf}, {0xa960, 0xa97f}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
  {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x17000, 0x18aff}, {0x1b000, 0x1b2ff}, {0x1f200, 0x1f2ff},
  {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}
local NONE = {
  {0x300, 0x36f}, {0x483, 0x489}, {0x591, 0x5bd}, {0x610, 0x61a}, {0x64b, 0x65f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
  {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0x1f3fb, 0x1f3ff},
  {0xe0100, 0xe01ef},
}

local function is_in(blocks, code)
  for _, block in ipairs(blocks) do
    if code < block[1] then return false end
    if code <= block[2] then return true end
  end
  return false
end

local function code_of(character)
  local first = character:byte(1)
  if first < 0x80 then return first end
  local code = first >= 0xf0 and first % 8 or first >= 0xe0 and first % 16 or first % 32
  for i = 2, #character do code = code * 64 + character:byte(i) % 64 end
  return code
end

local function width_of(character)
  local code = code_of(character)
  return code < 0x300 and 1 or is_in(NONE, code) and 0 or is_in(WIDE, code) and 2 or 1
end

local CHARACTER = "[^\128-\191][\128-\191]*"

--- The columns of a text without control characters.
function columns.of(text)
  if not text:find "[\128-\255]" then return #text end
  local count = 0
  for character in text:gmatch(CHARACTER) do count = count + width_of(character) end
  return count
end

--- Fill a text with blanks up to a width; `right`: before it.
---@param right? boolean
function columns.pad(text, width, right)
  local blanks = (" "):rep(width - columns.of(text))
  return right and blanks .. text or text .. blanks
end

--- The longest beginning of a text of at most `most` columns.
---@return string
function columns.cut(text, most)
  local count, at = 0, 1
  for character in text:gmatch(CHARACTER) do
    count = count + width_of(character)
    if count > most then return text:sub(1, at - 1) end
    at = at + #character
  end
  return text
end

return columns
