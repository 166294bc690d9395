-- Comma-separated values: cells that are written are read as they were.
local C = require "accelhost._C"
local csv = require "accelhost.util.csv"

describe("Comma-separated values", function()
  it("write whole numbers with all digits and others with as many as they need", function()
    assert.equal("1000000000000000", csv.cell(1e15))
    assert.equal("0.1", csv.cell(0.1))
    assert.equal("1e+300", csv.cell(1e300))
    assert.equal("nan", csv.cell(0 / 0))
    assert.equal("-inf", csv.cell(-math.huge))
    assert.equal("", csv.cell(nil))
  end)

  it("quote commas, quotes and ends of lines, which are read back", function()
    local cells = {'a "b"', "c,d", "e\r\nf", "g"}
    local written = {}
    for i, cell in ipairs(cells) do written[i] = csv.cell(cell) end
    local rows, whole = C.data.csv_rows(table.concat(written, ",") .. "\n")
    assert.same({cells}, rows)
    assert.is_true(whole)
  end)

  it("read rows up to one that does not end or is damaged", function()
    local rows, whole = C.data.csv_rows "a,b\r\n1,\r\n2"
    assert.same({{"a", "b"}, {"1", ""}}, rows)
    assert.is_false(whole)
    rows, whole = C.data.csv_rows 'a\n"b"c\nd\n'
    assert.same({{"a"}}, rows)
    assert.is_false(whole)
    assert.is_false(select(2, C.data.csv_rows 'a\n"b\n'))
    assert.is_true(select(2, C.data.csv_rows ""))
  end)

  it("report a row of too many cells instead of dropping it", function()
    assert.error_matches(function() C.data.csv_rows(("x,"):rep(5000) .. "\n") end, "4096")
  end)
end)
