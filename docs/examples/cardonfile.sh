#!/bin/sh
# The command `cardonfile`, for root: it runs as the user of the units, with their settings.
set -ae
. /etc/cardonfile/settings
HOME=/var/lib/cardonfile
exec setpriv --reuid cardonfile --regid cardonfile --init-groups -- \
    /opt/cardonfile/bin/cardonfile "$@"
