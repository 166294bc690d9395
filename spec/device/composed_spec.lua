--- accelhost.linalg and functions on images on "far": what they make on the way lies where their inputs do.
local op_fixture = require "spec.support.op_fixture"

describe("Composed functions:", function()
  op_fixture.define_on(require "spec.fixtures.linalg", it, "far")
  op_fixture.define_on(require "spec.fixtures.spatial", it, "far")
end)
