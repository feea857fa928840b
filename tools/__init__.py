"""How the shipped networks were made: commands for those who change them; no part of the
package."""
