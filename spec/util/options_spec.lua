local run = require "spec.support.run"

local script = [[
  local accelhost = require "accelhost"
  local args = accelhost.parse_args {
    description = "Tries the parser.",
    {"lr", 1e-3, "learning rate"},
    {"epochs", 1, "passes", integer = true, minimum = 1},
    {"data", nil, "folder", type = "string", metavar = "DIR"},
    {"optimizer", "adamw", "which one", choices = {"adamw", "sgd"}},
    {"smoke", false, "a short run"},
  }
  print(args.lr, args.epochs, args.data, args.optimizer, args.smoke)
]]

local function parse(...)
  return run.host {"-e", script, ...}
end

describe("parse_args", function()
  it("returns the defaults", function()
    assert.equal("0.001\t1\tnil\tadamw\tfalse\n", parse().stdout)
  end)

  it("accepts --name value, --name=value, dashes for underscores, and switches", function()
    assert.equal("0.5\t3\ta=b\tsgd\ttrue\n",
      parse("--lr", "0.5", "--epochs=3", "--data=a=b", "--optimizer", "sgd", "--smoke").stdout)
  end)

  it("refuses defaults by name, and names the function that accepts them", function()
    local result = run.host {"-e", "require('accelhost').parse_args {lr = 0.1}"}
    assert.equal(1, result.code)
    assert.truthy(result.stderr:find("parse_args: expected rows {name, default, help} and 'description', got 'lr' "
      .. "(accelhost.args accepts defaults by name: {lr = ...})", 1, true), result.stderr)
  end)

  it("prints help and ends with 0", function()
    local result = parse("--help")
    run.succeeds(result)
    assert.matches("Tries the parser%.", result.stdout)
    assert.matches("%-%-data DIR +folder", result.stdout)
    assert.matches("%-%-optimizer adamw|sgd +which one %(default adamw%)", result.stdout)
  end)

  it("prints a line break of a default as \\n", function()
    local result = run.host {"-e",
      [[require("accelhost").parse_args {description = "Writes.", {"prompt", "a\n", "text"}}]], "--help"}
    assert.truthy(result.stdout:find("text (default a\\n)\n", 1, true), result.stdout)
  end)

  for _, case in ipairs {
    {{"--epoch", "2"}, "unknown option '%-%-epoch' %(did you mean '%-%-epochs'%?%)"},
    {{"--epochs", "x"}, "%-%-epochs: expected an integer, got 'x'"},
    {{"--epochs", "1.5"}, "%-%-epochs: expected an integer, got '1%.5'"},
    {{"--epochs", "0"}, "%-%-epochs: expected at least 1, got 0"},
    {{"--optimizer", "adam"}, "expected one of adamw, sgd, got 'adam'"},
    {{"--data"}, "%-%-data expects a value"},
    {{"--smoke=1"}, "%-%-smoke has no value"},
    {{"left over"}, "unexpected argument 'left over'"},
  } do
    it("ends with 2 on " .. table.concat(case[1], " "), function()
      local result = parse(unpack(case[1]))
      assert.equal(2, result.code)
      assert.matches(case[2], result.stderr)
    end)
  end
end)
