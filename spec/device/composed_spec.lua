--- accelhost.linalg and functions on images on "far": intermediate tensors are stored where their inputs are.
local fixtures = require "spec.support.fixtures"
local op_fixture = require "spec.support.op_fixture"

describe("Composed functions:", function()
  for _, fixture in ipairs(fixtures.files "linalg") do op_fixture.define_on(fixture, it, "far") end
  op_fixture.define_on(fixtures.load "spatial", it, "far")
end)
