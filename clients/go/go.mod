module consign.invalid/clients/meshdaemon

go 1.19
