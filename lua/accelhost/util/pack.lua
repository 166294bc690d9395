--- Keep values, nils among them, in a table: `unpack(packed, 1, packed.n)` returns them.
---@return table # {n = count, ...}
return function(...) return {n = select("#", ...), ...} end
