// Package targettest is what every target driver must do, as one suite of real tasks; a driver's test is one call of Run. It knows no
// driver, and it fakes nothing: tasks are bash commands that use what every Linux image has.
package targettest
